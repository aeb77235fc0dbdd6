package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

const watchDoc = `Server-sent events. First one or more "snapshot" events ({machine, revision, items, more}), then an "entity" event with
the whole entity for each change, newest state first to come, and "deleted" ({machine, key, revision}) when one is purged. A comment
comes every 10 s. "id" is where a reconnect goes on (Last-Event-ID or ?after=): what has changed since is sent as a snapshot.
"stale" ({staleSeconds}) says that the node hears nothing from the bucket, or cannot hear the others, and then with 0 that it does again; it comes with the comments.
"reset" says that the watch could not keep up, or that the id is not of this store, or of what it was before it lost its end or was restored, or of a watch of states: forget everything, a new snapshot follows. "end" says that the server stops.`

func (s *Server) watchOneRoute(m *machines.Machine, base string) *route {
	rt := anyWatchRoute("watch-"+m.Name, base+"/{id}/watch", "Watch one "+m.Name)
	rt.op.Tags = []string{m.Name}
	rt.op.Errors = append(rt.op.Errors, 404)
	rt.serve = func(q *request) error {
		_, key, err := q.key(m)
		if err != nil {
			return err
		}
		if _, ok := q.o.Indexes[m.Name].Get(key); !ok {
			if _, err := q.load(m, key); err != nil {
				return err
			}
		}
		return q.watch([]*watched{{m: m, query: kv.Query{}, filter: kv.Filter{Key: key}}})
	}
	return rt
}

func (s *Server) watchRoute() *route {
	rt := anyWatchRoute("watch", "/v1/watch", "Watch many entities")
	rt.op.Tags = []string{"watch"}
	rt.op.Parameters = append(rt.op.Parameters,
		query("machine", "Only this machine", text(63)), query("parent", "Only the children of this parent; needs machine", text(63)),
		query("id", "Only this entity; needs machine", text(63)),
		query("state", "Only those in these states, and those that have just left them; with commas or repeated", &huma.Schema{Type: huma.TypeArray, Items: text(512)}))
	rt.serve = func(q *request) error {
		all, err := q.watchedBy()
		if err != nil {
			return err
		}
		return q.watch(all)
	}
	return rt
}

func anyWatchRoute(id, path, summary string) *route {
	return &route{role: Read, op: huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Description: watchDoc, Errors: []int{404, 422, 503},
		Parameters: []*huma.Param{
			query("namespace", "The namespace, or * for all that the token may see", text(63)),
			query("after", "Go on behind this id, or behind the revision of a list", text(2048)),
			header("Last-Event-ID", "The same, as browsers send it", "42-16.k3f9a2.m2j9h87"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "Events until the client or the server ends it", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}}
}

// watched is what one watch wants of one machine.
type watched struct {
	m      *machines.Machine
	filter kv.Filter
	query  kv.Query // the same, for the snapshot

	after uint64    // the client has everything up to here; 0 for nothing
	tells bool      // it says what it was told of
	names []witness // which is this
	told  []witness // of what it is told now, the newest first
	mark  uint64    // the client has everything up to here now
	base  uint64    // the revision of the snapshot
	newer map[string]uint64
	sub   *kv.Subscription
}

// watchedBy reads what the query of a watch asks for.
func (q *request) watchedBy() ([]*watched, error) {
	ns, p := q.who.in(q.query.Get("namespace"), true)
	if p != nil {
		return nil, p
	}
	if ns == anyNamespace {
		ns = ""
	}
	name, parent, id, states := q.query.Get("machine"), q.query.Get("parent"), q.query.Get("id"), values(q.query["state"])
	for param, v := range map[string]string{"parent": parent, "id": id} {
		switch {
		case v == "":
		case name == "":
			return nil, invalid("query."+param, "needs machine")
		case ns == "":
			return nil, invalid("query."+param, "needs one namespace")
		case streams.CheckLabel(v) != nil:
			return nil, invalid("query."+param, labelRule)
		}
	}
	var all []*watched
	for _, m := range q.o.Machines {
		if name != "" && name != m.Name {
			continue
		}
		w := &watched{m: m, filter: kv.Filter{Namespace: ns, States: states}, query: kv.Query{Namespace: ns, Parent: parent, States: states}}
		switch {
		case id != "" && (m.Parent == "") != (parent == ""):
			return nil, invalid("query.parent", "is needed with id exactly for machines that have a parent")
		case id != "":
			w.filter.Key = machines.Key(ns, parent, id)
		case parent != "":
			w.filter.Prefix = ns + "." + parent + "."
		}
		all = append(all, w)
	}
	if len(all) == 0 {
		return nil, problem(machines.CodeNotFound, "there is no such machine")
	}
	for _, state := range states {
		if !slices.ContainsFunc(all, func(w *watched) bool { _, ok := w.m.State(state); return ok }) {
			return nil, invalid("query.state", "is no state of what is watched")
		}
	}
	return all, nil
}

// resume reads where the client stands: a place, or one per machine.
func (q *request) resume(all []*watched) *Problem {
	text := q.query.Get("after")
	if text == "" {
		text = q.r.Header.Get("Last-Event-ID")
	}
	if text == "" || text == "0" {
		return nil
	}
	for _, part := range strings.Split(text, ",") {
		name, number, named := strings.Cut(part, ":")
		if !named {
			name, number = all[0].m.Name, part
		}
		w := &watched{} // of a machine that is not watched
		if i := slices.IndexFunc(all, func(w *watched) bool { return w.m.Name == name }); i >= 0 {
			w = all[i]
		}
		if !w.goOn(number) || !named && len(all) > 1 {
			return invalid("query.after", "is not an id of this watch")
		}
	}
	return nil
}

// watch serves one watch from its snapshot to its end.
func (q *request) watch(all []*watched) error {
	if p := q.resume(all); p != nil {
		return p
	}
	leave, err := q.sit()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(q.ctx())
	defer cancel()
	w := newEventWriter(q)
	if q.r.Method == http.MethodHead {
		return nil
	}
	stale := false
	for ctx.Err() == nil && w.err == nil && q.closing.Err() == nil {
		if stale {
			anew(w, all, "changes were missed")
		}
		stale = q.follow(ctx, w, all)
	}
	if q.closing.Err() != nil {
		w.say("end", "the server stops; come back")
	}
	return nil
}

// sit takes a place for a watch; leave gives it back.
func (q *request) sit() (leave func(), err error) {
	stand, err := q.limits.watches.Take(q.client())
	if err != nil {
		return nil, tooMany(err, 5*time.Second)
	}
	if !q.enter() {
		stand()
		return nil, unavailable("the server is stopping")
	}
	q.metrics.watches.Inc()
	return func() {
		q.metrics.watches.Dec()
		q.watches.Done()
		stand()
	}, nil
}

// enter counts a watch, unless the server is being closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return false
	}
	s.watches.Add(1)
	return true
}
