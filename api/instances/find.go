// Package instances registers the instances of services, takes their heartbeats, and answers where they are: once, as a blocking read,
// as a watch, over NATS, and as targets of Prometheus. Answers come from [discovery.Catalog], in memory.
//
// A registration goes: register.go → package commands. A question goes: find.go (query, wait) → the catalog → head and list, one
// write. A watch goes: watch.go → delta.go, where a difference is encoded once for all watches.
package instances

// GET /v1/discover and /v1/discover/{service}, and the Service with all routes of the package. discover reads the query
// (filter), waits for minRevision (caughtUp) and for a change after ?index= (nextChange), and answers from the catalog
// (found): the answer to a plain query is the JSON that the snapshot keeps. ?at= is answered in past.go.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/commands"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/rpc"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/machines"
)

// Discovered is the answer to "where is service X?".
type Discovered struct {
	Service   string               `json:"service"`
	Namespace string               `json:"namespace"`
	Index     uint64               `json:"index" doc:"Every change up to this revision is in the answer; pass it as ?index= to wait for the next one"`
	Changed   uint64               `json:"changed" doc:"Revision of the last change of this service"`
	Protected bool                 `json:"protected" doc:"The service is in self-preservation: its instances may be gone"`
	Stale     float64              `json:"staleSeconds,omitempty" doc:"The node cannot reach the others: the answer is its state of so many seconds ago"`
	AsOf      *discovery.AsOf      `json:"asOf,omitempty" doc:"With ?at=: the events that the answer was built from"`
	Instances []discovery.Endpoint `json:"instances"`
}

// DiscoveredServices lists the services of a namespace.
type DiscoveredServices struct {
	Services []discovery.Summary `json:"services"`
	Index    uint64              `json:"index" doc:"Every change up to this revision is in the answer"`
}

const (
	headerIndex = "X-Instar-Index"
)

const discoverDoc = `Returns, from memory, the instances that may receive traffic, with their current weights. An unknown service has an empty list.
A node that cannot reach the others answers with its last state, and says how old that is (X-Instar-Stale-Seconds, staleSeconds). With ?index= the answer waits until this service has changed after that
revision, or until ?wait= has passed. Send the ETag of your list as If-None-Match as well: then the answer comes at once if the store was restored or has lost its end, so that the index belongs to another history.
With ?at= it is the answer as of that time, or after the event with that sequence, built from the stream of events.`

// Service registers instances, takes their heartbeats, and finds and watches them.
type Service struct {
	catalog *discovery.Catalog
	deltas  deltas // of watches

	rest   *rest.Server
	store  *entities.Store
	sender *commands.Sender
	rpc    *rpc.Server
}

// New makes a service of a catalog, which may not be complete yet: until it is, questions are answered with 503.
func New(d *rest.Server, st *entities.Store, se *commands.Sender, r *rpc.Server, catalog *discovery.Catalog) *Service {
	return &Service{catalog: catalog, rest: d, store: st, sender: se, rpc: r}
}

// Routes are the operations on instances that are not generated; none without a catalog.
func (s *Service) Routes(r *rest.Router) []*rest.Route {
	tags := []string{"discovery"}
	one := &rest.Route{Role: auth.Read, Serve: s.discover, Op: huma.Operation{
		OperationID: "discover", Method: http.MethodGet, Path: "/v1/discover/{service}", Tags: tags, Summary: "Find the instances of a service", Description: discoverDoc,
		Errors: []int{404, 503, 504},
		Parameters: append(filterParams(),
			rest.QueryParam("prefer", "A zone: instances of other zones only when it has none", rest.Text(63)),
			rest.QueryParam("choose", "So many, by weight: at random, or with key always the same ones", rest.Number(1)),
			rest.QueryParam("key", "With choose: weighted rendezvous hashing, so that only the keys of an instance that goes get another one", rest.Text(256)),
			rest.QueryParam("minRevision", "Wait until this revision was read, and the registration that it is of is admitted, up to 5 s", rest.Number(0)),
			rest.QueryParam("index", "Wait for a change of this service after this index", rest.Number(0)),
			rest.QueryParam("wait", "With index: so long at most; 5m by default, up to 10m, and a random part more", rest.Text(32)),
			rest.QueryParam("at", "As it was then: a time of RFC 3339, or a sequence of the stream of events", rest.Text(40)),
			rest.HeaderParam("If-None-Match", "Answer 304 when the list is still the one of this ETag; with index, answer at once when it is not", `W/"2zpk1v8x2m7w"`),
		),
		Responses: map[string]*huma.Response{
			"200": {Description: "The instances", Headers: foundHeaders(), Content: r.BodyOf(reflect.TypeFor[Discovered]())},
			"304": {Description: "The list still has the ETag", Headers: foundHeaders()},
		},
	}}
	all := &rest.Route{Role: auth.Read, Serve: s.discoverAll, Op: huma.Operation{
		OperationID: "discover-services", Method: http.MethodGet, Path: "/v1/discover", Tags: tags, Summary: "List the services that have instances", Errors: []int{404, 503, 504},
		Description: "Services whose instances have all ended are listed with none.",
		Parameters: []*huma.Param{
			rest.QueryParam("namespace", "The namespace, or * for all that the token may see", rest.Text(63)), rest.QueryParam("minRevision", "Wait until this revision is in the answer, up to 5 s", rest.Number(0)),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The services", Headers: indexHeaders(), Content: r.BodyOf(reflect.TypeFor[DiscoveredServices]())}},
	}}
	routes := []*rest.Route{one, all, s.discoverWatchRoute()}
	routes = append(routes, s.registrationRoutes(r)...)
	return append(routes, s.prometheusRoutes(r)...)
}

// indexHeaders are the headers of every answer about instances.
func indexHeaders() map[string]*huma.Param {
	return map[string]*huma.Param{
		headerIndex:      {Schema: rest.Number(0)},
		rest.HeaderStale: rest.StaleHeader(),
	}
}

// foundHeaders are the headers of an answer about one service.
func foundHeaders() map[string]*huma.Param {
	headers := indexHeaders()
	headers["ETag"] = &huma.Param{Description: "ETag of the list: equal at all nodes, except while weights warm up, and after a restore. Absent with choose and at", Schema: rest.Text(32)}
	return headers
}

// filterParams are the parameters that say which instances are meant.
func filterParams() []*huma.Param {
	list := func(name, doc string) *huma.Param {
		return rest.QueryParam(name, doc, &huma.Schema{Type: huma.TypeArray, Items: rest.Text(256)})
	}
	return []*huma.Param{
		rest.NamespaceParam(), rest.QueryParam("include", "draining: also those that end", &huma.Schema{Type: huma.TypeString, Enum: []any{"draining"}}),
		rest.QueryParam("zone", "Only of this zone", rest.Text(63)), rest.QueryParam("version", "Only of this version", rest.Text(128)),
		list("tag", "Only with this tag; repeated, all must be there"), list("meta", "Only with this in the payload: k=v; repeated, all must hold"),
	}
}

// maxFilters bounds the repeated parameters.
const maxFilters = 16

// filter reads which instances are meant.
func (s *Service) filter(q *rest.Request) (discovery.Query, *problem.Problem) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), false)
	dq := discovery.Query{
		Namespace: ns, Service: q.PathValue("service"), Draining: q.Query.Get("include") == "draining", Zone: q.Query.Get("zone"), Version: q.Query.Get("version"),
		Tags: q.Query["tag"], Prefer: q.Query.Get("prefer"), Choose: int(min(q.Number("choose"), 1<<20)), Key: q.Query.Get("key"), // bounded
	}
	switch {
	case p != nil:
		return dq, p
	case len(dq.Tags) > maxFilters:
		return dq, problem.Invalid("query.tag", fmt.Sprintf("must be up to %d", maxFilters))
	case len(q.Query["meta"]) > maxFilters:
		return dq, problem.Invalid("query.meta", fmt.Sprintf("must be up to %d", maxFilters))
	case dq.Key != "" && dq.Choose == 0:
		return dq, problem.Invalid("query.key", "needs choose")
	}
	for _, pair := range q.Query["meta"] {
		k, v, ok := strings.Cut(pair, "=")
		if old, twice := dq.Meta[k]; !ok || k == "" || twice && old != v {
			return dq, problem.Invalid("query.meta", "must be k=v, each k once")
		}
		if dq.Meta == nil {
			dq.Meta = map[string]string{}
		}
		dq.Meta[k] = v
	}
	return dq, nil
}

func (s *Service) discover(q *rest.Request) error {
	dq, p := s.filter(q)
	if p != nil {
		return p
	}
	if at := q.Query.Get("at"); at != "" {
		return s.discoverAt(q, dq, at)
	}
	if err := s.caughtUp(q, dq); err != nil {
		return err
	}
	if err := s.nextChange(q, dq); err != nil {
		return err
	}
	return s.found(q, dq)
}

// caughtUp waits until the catalog has reached minRevision and, if that is the revision of a registration with the service that is asked about, until it is
// admitted: then the instance is found. Until the catalog is complete it fails, because a list that lacks instances would be taken for the whole.
func (s *Service) caughtUp(q *rest.Request, dq discovery.Query) error {
	select {
	case <-s.catalog.Ready():
	default:
		return problem.Unavailable("the instances are still being read")
	}
	rev := q.Number("minRevision")
	if s.has(dq, rev) {
		return nil
	}
	return q.Hold(func(ctx context.Context) error {
		if err := s.store.Written(q, ctx, s.instances(), rev); err != nil {
			return err
		}
		if p := s.await(ctx, dq, rev); p != nil {
			return p
		}
		return nil
	})
}

// has reports whether nothing has to be waited for.
func (s *Service) has(dq discovery.Query, rev uint64) bool {
	_, pending := s.catalog.Pending(dq.Namespace, dq.Service, rev)
	return rev <= s.catalog.Index() && !pending
}

// await waits for what [Service.has] reports, until ctx ends.
func (s *Service) await(ctx context.Context, dq discovery.Query, rev uint64) *problem.Problem {
	if s.catalog.Wait(ctx, rev) != nil {
		return rest.Late("discovery has not reached minRevision yet")
	}
	if id, pending := s.catalog.Pending(dq.Namespace, dq.Service, rev); pending && s.catalog.Decided(ctx, dq.Namespace, dq.Service, id) != nil {
		return rest.Late("the registration of minRevision is not admitted yet")
	}
	return nil
}

// instances is the machine whose entities are found. Package api has checked that it is there.
func (s *Service) instances() *machines.Machine { return s.store.Machines.Get(discovery.Machine) }

// How long a blocking read waits.
const (
	blockDefault = 5 * time.Minute
	blockMost    = 10 * time.Minute

	// aheadWait is how long a node that is asked about an index beyond its own waits for it, before it answers with what it
	// has: a node that is cut off from the others knows that by then, and says so.
	aheadWait = 6 * time.Second
)

// nextChange blocks a read that asks for it until its service has changed. It takes one of the places of watches.
func (s *Service) nextChange(q *rest.Request, dq discovery.Query) error {
	index, most := q.Number("index"), blockDefault
	if text := q.Query.Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return problem.Invalid("query.wait", "must be a duration such as 30s")
		}
		if !q.Query.Has("index") {
			return problem.Invalid("query.wait", "needs index")
		}
		most = min(d, blockMost)
	}
	if index == 0 || most == 0 || q.R.Method == http.MethodHead {
		return nil
	}
	leave, err := q.TakeWatch()
	if err != nil {
		return err
	}
	defer leave()
	most += time.Duration(rand.Int64N(int64(most)/16 + 1)) // those who began together do not come back together
	ctx, cancel := context.WithTimeout(q.Context(), most)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	if index > s.catalog.Index() { // of another node that is ahead, or of another store: then it is answered soon
		soon, cancel := context.WithTimeout(ctx, aheadWait)
		defer cancel()
		if s.catalog.Wait(soon, index) != nil {
			return q.Context().Err()
		}
	}
	for {
		woken := s.catalog.Watch(dq.Namespace, dq.Service, index)
		if sn := s.catalog.Snapshot(dq.Namespace, dq.Service); sn != nil && sn.Changed > index || s.hasOther(q, dq) {
			return nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return q.Context().Err() // the client's end; else what there is is answered
		}
	}
}

// hasOther reports whether If-None-Match shows that the client has another list than the one of now: the index that it waits
// for may be of a history that the store has lost.
func (s *Service) hasOther(q *rest.Request, dq discovery.Query) bool {
	if len(q.R.Header["If-None-Match"]) == 0 || dq.Choose > 0 {
		return false
	}
	r := s.catalog.Find(dq)
	return !rest.Unchanged(q.R, r.Tag())
}

// found answers with what is found now. The answer to a plain query contains a list that was encoded before.
func (s *Service) found(q *rest.Request, dq discovery.Query) error {
	if !dq.Plain() {
		r := s.catalog.Find(dq)
		if dq.Choose == 0 && s.notModified(q, r.Index, r.Tag()) {
			return nil
		}
		return s.writeFound(q, dq, r, discovery.List(r.Endpoints))
	}
	index := s.catalog.Index()
	sn := s.catalog.Whole(dq.Namespace, dq.Service)
	if s.notModified(q, index, sn.Tag()) {
		return nil
	}
	return s.writeFound(q, dq, discovery.Result{Index: index, Changed: sn.Changed, Protected: sn.Protected}, sn.Instances())
}

// notModified sets the ETag of an answer, and answers 304 when the client has that one. It is weak: the index in the body rises without a change of the list.
func (s *Service) notModified(q *rest.Request, index uint64, tag string) bool {
	q.W.Header()["Etag"] = []string{`W/"` + tag + `"`}
	if !rest.Unchanged(q.R, tag) {
		return false
	}
	s.setIndex(q, index)
	q.W.WriteHeader(http.StatusNotModified)
	return true
}

// head is an answer up to its list. If stale is not 0, the answer may be as old as that.
func head(dq discovery.Query, r discovery.Result, stale time.Duration) []byte {
	b := make([]byte, 0, 256)
	b = append(append(b, `{"service":"`...), dq.Service...) // names are labels: nothing is to be escaped
	b = append(append(b, `","namespace":"`...), dq.Namespace...)
	b = strconv.AppendUint(append(b, `","index":`...), r.Index, 10)
	b = strconv.AppendUint(append(b, `,"changed":`...), r.Changed, 10)
	b = strconv.AppendBool(append(b, `,"protected":`...), r.Protected)
	if stale > 0 {
		b = append(append(b, `,"staleSeconds":`...), sse.Seconds(stale)...)
	}
	return append(b, `,"instances":`...)
}

// bodies are buffers for answers.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// setIndex sets the headers that say up to which index an answer is complete and, if the node may be behind, for how long.
func (s *Service) setIndex(q *rest.Request, index uint64) (stale time.Duration) {
	h := q.W.Header()
	h[headerIndex] = []string{strconv.FormatUint(index, 10)}
	if stale = s.catalog.Stale(); stale > 0 {
		h[rest.HeaderStale] = []string{sse.Seconds(stale)}
	}
	return stale
}

func (s *Service) writeFound(q *rest.Request, dq discovery.Query, r discovery.Result, list []byte) error {
	head := head(dq, r, s.setIndex(q, r.Index))
	h := q.W.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(head) + len(list) + 2)}
	q.W.WriteHeader(http.StatusOK)
	if q.R.Method != http.MethodHead {
		whole := bodies.Get().(*[]byte) // one write: several would be several packets
		*whole = append(append(append((*whole)[:0], head...), list...), "}\n"...)
		_, _ = q.W.Write(*whole) // the client may be gone
		bodies.Put(whole)
	}
	return nil
}

func (s *Service) discoverAll(q *rest.Request) error {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return p
	}
	if err := s.caughtUp(q, discovery.Query{}); err != nil {
		return err
	}
	index := s.catalog.Index()
	s.setIndex(q, index)
	return q.JSON(http.StatusOK, DiscoveredServices{s.catalog.Summaries(ns), index})
}
