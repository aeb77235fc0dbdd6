// Package watch serves watches of entities: what there is, and what changes, as server-sent events.
package watch

// GET /v1/watch and …/{id}/watch. The query becomes one watched per machine (watchedBy), with the position that the client
// gives as ?after= or Last-Event-ID (resume). serve then takes one of the client's places for watches and has follow.go
// write the events until the client or the server ends, from a new snapshot whenever changes were lost.

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

const watchDoc = `Server-sent events. One or more "snapshot" events ({machine, revision, items, more}) come first, then an "entity" event with
the whole entity after each change (only the newest if several follow quickly), and "deleted" ({machine, key, revision}) when one is purged. "parked" ({machine, item}) is for one whose value this version cannot read. A comment
is sent every 10 s. "id" is where a reconnect continues (Last-Event-ID or ?after=): changes since then are sent as a snapshot.
"stale" ({staleSeconds}), sent with each comment, means that the node receives nothing from the bucket, or cannot reach the others; with 0 that it does.
"reset" means that the watch could not keep up, or that the id belongs to another store, to the time before the store was restored or lost its end, or to a watch of states: drop everything, a new snapshot follows. "end" means that the server stops or, where all machines are watched, that there is a new one: reconnect.`

// maxPlace is how long an id may be: up to 250 characters for each machine that is watched, but no more than a proxy takes of an address.
const maxPlace = 8000

// Service serves them.
type Service struct {
	rest    *rest.Server
	store   *entities.Store
	fanouts fanouts
}

// New serves watches of what is stored.
func New(server *rest.Server, store *entities.Store) *Service {
	return &Service{rest: server, store: store, fanouts: fanouts{open: map[string]*fanout{}}}
}

// Encoded is how many changes were written as events so far, each once for all who watch it.
func (s *Service) Encoded() uint64 { return s.fanouts.encoded.Load() }

// RouteOf is the route of the watches of one entity of a machine.
func (s *Service) RouteOf(m *machines.Machine, base string) *rest.Route {
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
		return s.serve(q, []*watched{{m: m, query: index.Query{}, filter: index.Filter{Key: key}}}, context.Background())
	}
	return rt
}

// Route is the route of the watches of many entities.
func (s *Service) Route() *rest.Route {
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
		if q.Query.Get("machine") != "" {
			return s.serve(q, all, context.Background())
		}
		return s.serve(q, all, q.Replaced())
	}
	return rt
}

func anyWatchRoute(id, path, summary string) *rest.Route {
	return &rest.Route{Role: auth.Read, Op: huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Description: watchDoc, Errors: []int{404, 422, 503},
		Parameters: []*huma.Param{
			rest.QueryParam("namespace", "The namespace, or * for all that the token may see", rest.Text(63)),
			rest.QueryParam("after", "Go on behind this id, or behind the revision of a list", rest.Text(maxPlace)),
			rest.HeaderParam("Last-Event-ID", "The same, as browsers send it", "42-16.k3f9a2.m2j9h87"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "Events, until the client or the server closes the stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}}
}

// watched is what one watch wants of one machine.
type watched struct {
	m      *machines.Machine
	ofAll  bool // one of all machines: the id names it, as there may be more when the client comes back
	filter index.Filter
	query  index.Query // the same, for the snapshot

	after uint64            // the client has everything up to here; 0 for nothing
	tells bool              // its id says what it was sent last
	names []witness         // which is this
	told  []witness         // what it was sent last now, the newest first
	mark  uint64            // the client has everything up to here now
	base  uint64            // the revision of the snapshot
	newer map[string]uint64 // what the snapshot had that is newer
	seen  uint64            // the highest revision in it
	kept  []witness         // what the client says that it was told, and nothing proves
}

// watchedBy reads what the query of a watch asks for.
func (s *Service) watchedBy(q *rest.Request) ([]*watched, error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return nil, p
	}
	name, parent, id, states := q.Query.Get("machine"), q.Query.Get("parent"), q.Query.Get("id"), q.Values("state")
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
	for _, m := range s.store.Machines.All() {
		if name != "" && name != m.Name {
			continue
		}
		w := &watched{m: m, ofAll: name == "", filter: index.Filter{Namespace: ns, States: states}, query: index.Query{Namespace: ns, Parent: parent, States: states}}
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
func (s *Service) resume(q *rest.Request, all []*watched) *problem.Problem {
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
		if !w.parsePlace(number) || !named && len(all) > 1 {
			return problem.Invalid("query.after", "is not an id of this watch")
		}
	}
	return nil
}

// serve serves one watch from its snapshot to its end. It ends with until, too.
func (s *Service) serve(q *rest.Request, all []*watched, until context.Context) error {
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
	defer context.AfterFunc(until, cancel)()
	w := sse.New(q.W)
	if q.R.Method == http.MethodHead {
		return nil
	}
	lost := false
	for ctx.Err() == nil && w.Err == nil && s.rest.Closing().Err() == nil {
		if lost {
			sendReset(w, all, "changes were missed")
		}
		lost = s.follow(q, ctx, w, all)
	}
	switch {
	case s.rest.Closing().Err() != nil:
		w.Notice("end", "the server stops; come back")
	case until.Err() != nil:
		w.Notice("end", "there is another machine; come back")
	}
	return nil
}
