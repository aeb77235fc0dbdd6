package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

const watchDoc = `Server-sent events. First one or more "snapshot" events ({machine, revision, items, more}), then an "entity" event with
the whole entity for each change, newest state first to come, and "deleted" ({machine, key, revision}) when one is purged. A comment
comes every 10 s. "id" is where a reconnect goes on (Last-Event-ID or ?after=): what has changed since is sent as a snapshot.
"stale" ({staleSeconds}) says that the node hears nothing from the bucket, or cannot hear the others, and then with 0 that it does again; it comes with the comments.
"reset" says that the watch could not keep up, or that the id is not of this store, or of what it was before it lost its end or was restored, or of a watch of states: forget everything, a new snapshot follows. "end" says that the server stops.`

func (s *Server) watchOneRoute(m *machines.Machine, base string) *rest.Route {
	rt := anyWatchRoute("watch-"+m.Name, base+"/{id}/watch", "Watch one "+m.Name)
	rt.Op.Tags = []string{m.Name}
	rt.Op.Errors = append(rt.Op.Errors, 404)
	rt.Serve = func(q *rest.Request) error {
		_, key, err := q.Key(m)
		if err != nil {
			return err
		}
		if _, ok := s.store.Index(m.Name).Get(key); !ok {
			if _, err := s.store.Load(q, m, key); err != nil {
				return err
			}
		}
		return s.watch(q, []*watched{{m: m, query: index.Query{}, filter: index.Filter{Key: key}}})
	}
	return rt
}

func (s *Server) watchRoute() *rest.Route {
	rt := anyWatchRoute("watch", "/v1/watch", "Watch many entities")
	rt.Op.Tags = []string{"watch"}
	rt.Op.Parameters = append(rt.Op.Parameters,
		rest.QueryParam("machine", "Only this machine", rest.Text(63)), rest.QueryParam("parent", "Only the children of this parent; needs machine", rest.Text(63)),
		rest.QueryParam("id", "Only this entity; needs machine", rest.Text(63)),
		rest.QueryParam("state", "Only those in these states, and those that have just left them; with commas or repeated", &huma.Schema{Type: huma.TypeArray, Items: rest.Text(512)}))
	rt.Serve = func(q *rest.Request) error {
		all, err := s.watchedBy(q)
		if err != nil {
			return err
		}
		return s.watch(q, all)
	}
	return rt
}

func anyWatchRoute(id, path, summary string) *rest.Route {
	return &rest.Route{Role: auth.Read, Op: huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Description: watchDoc, Errors: []int{404, 422, 503},
		Parameters: []*huma.Param{
			rest.QueryParam("namespace", "The namespace, or * for all that the token may see", rest.Text(63)),
			rest.QueryParam("after", "Go on behind this id, or behind the revision of a list", rest.Text(2048)),
			rest.HeaderParam("Last-Event-ID", "The same, as browsers send it", "42-16.k3f9a2.m2j9h87"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "Events until the client or the server ends it", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}}
}

// watched is what one watch wants of one machine.
type watched struct {
	m      *machines.Machine
	filter index.Filter
	query  index.Query // the same, for the snapshot

	after uint64    // the client has everything up to here; 0 for nothing
	tells bool      // it says what it was told of
	names []witness // which is this
	told  []witness // of what it is told now, the newest first
	mark  uint64    // the client has everything up to here now
	base  uint64    // the revision of the snapshot
	newer map[string]uint64
	sub   *index.Subscription
}

// watchedBy reads what the query of a watch asks for.
func (s *Server) watchedBy(q *rest.Request) ([]*watched, error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return nil, p
	}
	if ns == auth.AnyNamespace {
		ns = ""
	}
	name, parent, id, states := q.Query.Get("machine"), q.Query.Get("parent"), q.Query.Get("id"), values(q.Query["state"])
	for param, v := range map[string]string{"parent": parent, "id": id} {
		switch {
		case v == "":
		case name == "":
			return nil, problem.Invalid("query."+param, "needs machine")
		case ns == "":
			return nil, problem.Invalid("query."+param, "needs one namespace")
		case streams.CheckLabel(v) != nil:
			return nil, problem.Invalid("query."+param, problem.LabelRule)
		}
	}
	var all []*watched
	for _, m := range s.store.Machines {
		if name != "" && name != m.Name {
			continue
		}
		w := &watched{m: m, filter: index.Filter{Namespace: ns, States: states}, query: index.Query{Namespace: ns, Parent: parent, States: states}}
		switch {
		case id != "" && (m.Parent == "") != (parent == ""):
			return nil, problem.Invalid("query.parent", "is needed with id exactly for machines that have a parent")
		case id != "":
			w.filter.Key = machines.Key(ns, parent, id)
		case parent != "":
			w.filter.Prefix = ns + "." + parent + "."
		}
		all = append(all, w)
	}
	if len(all) == 0 {
		return nil, problem.New(machines.CodeNotFound, "there is no such machine")
	}
	for _, state := range states {
		if !slices.ContainsFunc(all, func(w *watched) bool { _, ok := w.m.State(state); return ok }) {
			return nil, problem.Invalid("query.state", "is no state of what is watched")
		}
	}
	return all, nil
}

// resume reads where the client stands: a place, or one per machine.
func (s *Server) resume(q *rest.Request, all []*watched) *problem.Problem {
	text := q.Query.Get("after")
	if text == "" {
		text = q.R.Header.Get("Last-Event-ID")
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
			return problem.Invalid("query.after", "is not an id of this watch")
		}
	}
	return nil
}

// watch serves one watch from its snapshot to its end.
func (s *Server) watch(q *rest.Request, all []*watched) error {
	if p := s.resume(q, all); p != nil {
		return p
	}
	leave, err := q.TakeWatch()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	w := sse.New(q.W)
	if q.R.Method == http.MethodHead {
		return nil
	}
	stale := false
	for ctx.Err() == nil && w.Err == nil && s.rest.Closing().Err() == nil {
		if stale {
			anew(w, all, "changes were missed")
		}
		stale = s.follow(q, ctx, w, all)
	}
	if s.rest.Closing().Err() != nil {
		w.Notice("end", "the server stops; come back")
	}
	return nil
}
