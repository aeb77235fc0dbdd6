package api

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/machines"
)

// Discovered is the answer to "where is service X?".
type Discovered struct {
	Service   string               `json:"service"`
	Namespace string               `json:"namespace"`
	Index     uint64               `json:"index" doc:"Every change up to this revision is in the answer; pass it as ?index= to wait for the next one"`
	Changed   uint64               `json:"changed" doc:"Revision of the last change of this service"`
	Protected bool                 `json:"protected" doc:"The service preserves itself: what is answered may be gone"`
	Stale     float64              `json:"staleSeconds,omitempty" doc:"The node cannot hear the others: what is answered is what it knew so many seconds ago"`
	AsOf      *discovery.AsOf      `json:"asOf,omitempty" doc:"With ?at=: what the answer was built from"`
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

const discoverDoc = `Answers from memory with the instances that may get traffic, with their weights of this moment. A service that nobody knows has
an empty list. A node that cannot hear the others answers with what it knew last, and says so (X-Instar-Stale-Seconds, staleSeconds). With ?index= the answer waits until this service (no other one) has changed after that revision, or until ?wait= is over. Send the ETag of the list that you
have as If-None-Match, too: then you are told at once when the store was restored, or has lost its end, so that the index is of another history.
With ?at= it is the answer as it would have been at a time, or after the event of that sequence, built from the stream of events.`

// discoverRoutes are the operations on instances that are not generated; none without a catalog.
func (s *Server) discoverRoutes() []*route {
	if s.o.Discovery == nil {
		return nil
	}
	tags := []string{"discovery"}
	one := &route{role: Read, serve: (*request).discover, op: huma.Operation{
		OperationID: "discover", Method: http.MethodGet, Path: "/v1/discover/{service}", Tags: tags, Summary: "Find the instances of a service", Description: discoverDoc,
		Errors: []int{404, 503, 504},
		Parameters: append(filterParams(),
			query("prefer", "A zone: instances of other zones only when it has none", text(63)),
			query("choose", "So many, by weight: at random, or with key always the same ones", number(1)),
			query("key", "With choose: weighted rendezvous hashing, so that only the keys of an instance that goes get another one", text(256)),
			query("minRevision", "Wait until this revision was read, and the registration that it is of is admitted, up to 5 s", number(0)),
			query("index", "Wait for a change of this service after this index", number(0)),
			query("wait", "With index: so long at most; 5m by default, up to 10m, and a random part more", text(32)),
			query("at", "As it was then: a time of RFC 3339, or a sequence of the stream of events", text(40)),
			header("If-None-Match", "Answer 304 when the list is still the one of this ETag; with index, answer at once when it is not", `W/"2zpk1v8x2m7w"`),
		),
		Responses: map[string]*huma.Response{
			"200": {Description: "What is found", Headers: foundHeaders(), Content: s.bodyOf(reflect.TypeFor[Discovered]())},
			"304": {Description: "The list is still the one of the ETag", Headers: foundHeaders()},
		},
	}}
	all := &route{role: Read, serve: (*request).discoverAll, op: huma.Operation{
		OperationID: "discover-services", Method: http.MethodGet, Path: "/v1/discover", Tags: tags, Summary: "List the services that have instances", Errors: []int{404, 503, 504},
		Description: "Services whose instances have all ended are in the list as well, with none.",
		Parameters: []*huma.Param{
			query("namespace", "The namespace, or * for all that the token may see", text(63)), query("minRevision", "Wait until this revision is in the answer, up to 5 s", number(0)),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The services", Headers: indexHeaders(), Content: s.bodyOf(reflect.TypeFor[DiscoveredServices]())}},
	}}
	routes := []*route{one, all, s.discoverWatchRoute()}
	routes = append(routes, s.registrationRoutes()...)
	return append(routes, s.prometheusRoutes()...)
}

// indexHeaders are those that every answer about what is found has.
func indexHeaders() map[string]*huma.Param {
	return map[string]*huma.Param{
		headerIndex: {Schema: number(0)},
		headerStale: staleHeader(),
	}
}

// foundHeaders are those of what is found of one service.
func foundHeaders() map[string]*huma.Param {
	headers := indexHeaders()
	headers["ETag"] = &huma.Param{Description: "Of the list: the same one at all nodes, except while weights warm up, and in all histories of the store. Not with choose and at", Schema: text(32)}
	return headers
}

// filterParams are those that say which instances are meant.
func filterParams() []*huma.Param {
	list := func(name, doc string) *huma.Param {
		return query(name, doc, &huma.Schema{Type: huma.TypeArray, Items: text(256)})
	}
	return []*huma.Param{
		namespaceParam(), query("include", "draining: also those that end", &huma.Schema{Type: huma.TypeString, Enum: []any{"draining"}}),
		query("zone", "Only of this zone", text(63)), query("version", "Only of this version", text(128)),
		list("tag", "Only with this tag; repeated, all must be there"), list("meta", "Only with this in the payload: k=v; repeated, all must hold"),
	}
}

// maxFilters bounds the repeated parameters.
const maxFilters = 16

// filter reads which instances are meant.
func (q *request) filter() (discovery.Query, *Problem) {
	ns, p := q.who.in(q.query.Get("namespace"), false)
	dq := discovery.Query{
		Namespace: ns, Service: q.path("service"), Draining: q.query.Get("include") == "draining", Zone: q.query.Get("zone"), Version: q.query.Get("version"),
		Tags: q.query["tag"], Prefer: q.query.Get("prefer"), Choose: int(min(q.number("choose"), 1<<20)), Key: q.query.Get("key"), //nolint:gosec // bounded
	}
	switch {
	case p != nil:
		return dq, p
	case len(dq.Tags) > maxFilters:
		return dq, invalid("query.tag", fmt.Sprintf("must be up to %d", maxFilters))
	case len(q.query["meta"]) > maxFilters:
		return dq, invalid("query.meta", fmt.Sprintf("must be up to %d", maxFilters))
	case dq.Key != "" && dq.Choose == 0:
		return dq, invalid("query.key", "needs choose")
	}
	for _, pair := range q.query["meta"] {
		k, v, ok := strings.Cut(pair, "=")
		if old, twice := dq.Meta[k]; !ok || k == "" || twice && old != v {
			return dq, invalid("query.meta", "must be k=v, each k once")
		}
		if dq.Meta == nil {
			dq.Meta = map[string]string{}
		}
		dq.Meta[k] = v
	}
	return dq, nil
}

func (q *request) discover() error {
	dq, p := q.filter()
	if p != nil {
		return p
	}
	if at := q.query.Get("at"); at != "" {
		return q.discoverAt(dq, at)
	}
	if err := q.caughtUp(dq); err != nil {
		return err
	}
	if err := q.nextChange(dq); err != nil {
		return err
	}
	return q.found(dq)
}

// caughtUp waits until the catalog has what minRevision asks for, and the registration that it is of, if it is one of what is asked about, is admitted:
// an instance is found from then on. Before the catalog is complete nothing is answered, because a list that lacks instances would be believed.
func (q *request) caughtUp(dq discovery.Query) error {
	select {
	case <-q.o.Discovery.Ready():
	default:
		return unavailable("the instances are still being read")
	}
	rev := q.number("minRevision")
	if q.has(dq, rev) {
		return nil
	}
	return q.holding(func(ctx context.Context) error {
		if err := q.written(ctx, q.instances(), rev); err != nil {
			return err
		}
		if p := q.await(ctx, dq, rev); p != nil {
			return p
		}
		return nil
	})
}

// has reports whether nothing has to be waited for.
func (s *Server) has(dq discovery.Query, rev uint64) bool {
	_, pending := s.o.Discovery.Pending(dq.Namespace, dq.Service, rev)
	return rev <= s.o.Discovery.Index() && !pending
}

// await waits for what [Server.has] reports, until ctx ends.
func (s *Server) await(ctx context.Context, dq discovery.Query, rev uint64) *Problem {
	if s.o.Discovery.Wait(ctx, rev) != nil {
		return late("discovery has not reached minRevision yet")
	}
	if id, pending := s.o.Discovery.Pending(dq.Namespace, dq.Service, rev); pending && s.o.Discovery.Decided(ctx, dq.Namespace, dq.Service, id) != nil {
		return late("the registration of minRevision is not admitted yet")
	}
	return nil
}

// instances is the machine whose entities are found; New has seen to it that it is there.
func (s *Server) instances() *machines.Machine {
	i := slices.IndexFunc(s.o.Machines, func(m *machines.Machine) bool { return m.Name == discovery.Machine })
	return s.o.Machines[i]
}

// How long a blocking read waits.
const (
	blockDefault = 5 * time.Minute
	blockMost    = 10 * time.Minute

	// aheadWait is how long a node that is asked about an index beyond its own waits for it, before it answers with what it
	// has: a node that is cut off from the others knows that by then, and says so.
	aheadWait = 6 * time.Second
)

// nextChange blocks a read that asks for it until its service has changed. It takes a seat, as a watch does.
func (q *request) nextChange(dq discovery.Query) error {
	index, most := q.number("index"), blockDefault
	if text := q.query.Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return invalid("query.wait", "must be a duration such as 30s")
		}
		if !q.query.Has("index") {
			return invalid("query.wait", "needs index")
		}
		most = min(d, blockMost)
	}
	if index == 0 || most == 0 || q.r.Method == http.MethodHead {
		return nil
	}
	leave, err := q.sit()
	if err != nil {
		return err
	}
	defer leave()
	most += time.Duration(rand.Int64N(int64(most)/16 + 1)) // those who began together do not come back together
	ctx, cancel := context.WithTimeout(q.ctx(), most)
	defer cancel()
	defer context.AfterFunc(q.closing, cancel)()
	if index > q.o.Discovery.Index() { // of another node that is ahead, or of another store: then it is answered soon
		soon, cancel := context.WithTimeout(ctx, aheadWait)
		defer cancel()
		if q.o.Discovery.Wait(soon, index) != nil {
			return q.ctx().Err()
		}
	}
	for {
		woken := q.o.Discovery.Watch(dq.Namespace, dq.Service, index)
		if sn := q.o.Discovery.Snapshot(dq.Namespace, dq.Service); sn != nil && sn.Changed > index || q.hasOther(dq) {
			return nil
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return q.ctx().Err() // the client's end; else what there is is answered
		}
	}
}

// hasOther reports whether the client has another list than would be answered now, as far as If-None-Match tells: the index
// that it waits for may be of a history that the store has lost.
func (q *request) hasOther(dq discovery.Query) bool {
	if len(q.r.Header["If-None-Match"]) == 0 || dq.Choose > 0 {
		return false
	}
	r := q.o.Discovery.Find(dq)
	return !unchanged(q.r, r.Tag())
}

// found answers with what is found now. A whole answer is put together from a list that was written before.
func (q *request) found(dq discovery.Query) error {
	if !dq.Plain() {
		r := q.o.Discovery.Find(dq)
		if dq.Choose == 0 && q.notModified(r.Index, r.Tag()) {
			return nil
		}
		return q.writeFound(dq, r, discovery.List(r.Endpoints))
	}
	index := q.o.Discovery.Index()
	sn := q.o.Discovery.Whole(dq.Namespace, dq.Service)
	if q.notModified(index, sn.Tag()) {
		return nil
	}
	return q.writeFound(dq, discovery.Result{Index: index, Changed: sn.Changed, Protected: sn.Protected}, sn.Instances())
}

// notModified tells the tag of an answer, and answers 304 when the client has that one. It is weak: the index moves on in it.
func (q *request) notModified(index uint64, tag string) bool {
	q.w.Header()["Etag"] = []string{`W/"` + tag + `"`}
	if !unchanged(q.r, tag) {
		return false
	}
	q.tellIndex(index)
	q.w.WriteHeader(http.StatusNotModified)
	return true
}

// head is an answer up to its list. What is stale was so before the question: it may be newer, never older than it says.
func head(dq discovery.Query, r discovery.Result, stale time.Duration) []byte {
	b := make([]byte, 0, 256)
	b = append(append(b, `{"service":"`...), dq.Service...) // names are labels: nothing is to be escaped
	b = append(append(b, `","namespace":"`...), dq.Namespace...)
	b = strconv.AppendUint(append(b, `","index":`...), r.Index, 10)
	b = strconv.AppendUint(append(b, `,"changed":`...), r.Changed, 10)
	b = strconv.AppendBool(append(b, `,"protected":`...), r.Protected)
	if stale > 0 {
		b = append(append(b, `,"staleSeconds":`...), seconds(stale)...)
	}
	return append(b, `,"instances":`...)
}

// bodies are buffers for answers.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// seconds is a duration as it is told; what is not 0 is at least a millisecond.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(max(d, time.Millisecond).Seconds(), 'f', 3, 64)
}

// tellIndex says up to where an answer is complete, and whether that was so a while ago.
func (q *request) tellIndex(index uint64) (stale time.Duration) {
	h := q.w.Header()
	h[headerIndex] = []string{strconv.FormatUint(index, 10)}
	if stale = q.o.Discovery.Stale(); stale > 0 {
		h[headerStale] = []string{seconds(stale)}
	}
	return stale
}

func (q *request) writeFound(dq discovery.Query, r discovery.Result, list []byte) error {
	head := head(dq, r, q.tellIndex(r.Index))
	h := q.w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{strconv.Itoa(len(head) + len(list) + 2)}
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method != http.MethodHead {
		whole := bodies.Get().(*[]byte) // one write: several would be several packets
		*whole = append(append(append((*whole)[:0], head...), list...), "}\n"...)
		_, _ = q.w.Write(*whole) // the client may be gone
		bodies.Put(whole)
	}
	return nil
}

func (q *request) discoverAll() error {
	ns, p := q.who.in(q.query.Get("namespace"), true)
	if p != nil {
		return p
	}
	if ns == anyNamespace {
		ns = ""
	}
	if err := q.caughtUp(discovery.Query{}); err != nil {
		return err
	}
	index := q.o.Discovery.Index()
	q.tellIndex(index)
	return q.json(http.StatusOK, DiscoveredServices{q.o.Discovery.Summaries(ns), index})
}
