package instances

// GET /v1/discover/{service}/watch. discoverWatch reads which instances are meant and where the client resumes; feed.run sends a
// snapshot, unless the client has the current list, and feed.follow waits for the catalog (Catalog.Stir) and sends the difference
// to what the client has, which delta.go encodes. Heartbeats, staleness and weights that change with time come from the same loop.

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
)

const discoverWatchDoc = `Server-sent events about the instances of one service. The first is "snapshot", with the answer of GET /v1/discover/{service}; then a "delta"
{index, changed, protected, put, remove} follows for each change: put has new and changed instances, remove has ids. Changes of
other services are not sent. A weight that warms up is sent once a second. A comment is sent every 10 s. "stale" {staleSeconds} means that
the node cannot reach the others, so that its state is that many seconds old; it is repeated every 10 s, and sent with 0 when the node reaches them again.
"id" is the index and a tag of the list. A reconnect with it (Last-Event-ID or ?after=), to any node, continues without a snapshot if the list is the same,
and begins with a new snapshot if not, also where the store was restored or has lost its end. An index without a tag is taken to be of this store. "end" means that the server stops.`

func (s *Service) discoverWatchRoute() *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.discoverWatch, Op: huma.Operation{
		OperationID: "watch-discover", Method: http.MethodGet, Path: "/v1/discover/{service}/watch", Tags: []string{"discovery"},
		Summary: "Watch the instances of a service", Description: discoverWatchDoc, Errors: []int{404, 503},
		Parameters: append(filterParams(),
			rest.QueryParam("prefer", "A zone: instances of other zones only when it has none", rest.Text(63)),
			rest.QueryParam("after", "Go on behind this id", rest.Text(64)), rest.HeaderParam("Last-Event-ID", "The same, as browsers send it", "42-2zpk1v8x2m7w")),
		Responses: map[string]*huma.Response{"200": {Description: "Events, until the client or the server closes the stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
	}}
}

// Paces of a watch of instances.
const (
	growth = time.Second          // between two deltas of weights that change with time
	pace   = 5 * time.Millisecond // between two deltas: what changes meanwhile is sent together
)

func (s *Service) discoverWatch(q *rest.Request) error {
	dq, p := s.filter(q)
	if p != nil {
		return p
	}
	after, p := s.resumeList(q)
	if p != nil {
		return p
	}
	if err := s.caughtUp(q, discovery.Query{}); err != nil {
		return err
	}
	leave, err := q.TakeWatch()
	if err != nil {
		return err
	}
	defer leave()
	w := sse.New(q.W)
	if q.R.Method == http.MethodHead {
		return nil
	}
	(&feed{Request: q, s: s, dq: dq, w: w}).run(after)
	if s.rest.Closing().Err() != nil {
		w.Notice("end", "the server stops; come back")
	}
	return nil
}

// listID is what the id of an event says: up to where a client has everything, and which list that is.
type listID struct {
	index uint64
	tag   string // empty: of an index alone
}

func (id listID) String() string { return strconv.FormatUint(id.index, 10) + "-" + id.tag }

func (s *Service) resumeList(q *rest.Request) (id listID, p *problem.Problem) {
	text, where := q.Query.Get("after"), "query.after"
	if text == "" || text == "0" {
		text, where = q.R.Header.Get("Last-Event-ID"), "header.Last-Event-ID"
	}
	if text == "" {
		return id, nil
	}
	number, tag, _ := strings.Cut(text, "-")
	index, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return id, problem.Invalid(where, "is not an id of this watch")
	}
	return listID{index, tag}, nil
}

// upToDate reports whether a client that has the list of this id lacks nothing of an answer.
func (id listID) upToDate(r *discovery.Result, sn *discovery.Snapshot) bool {
	switch {
	case id.index == 0 || id.index > r.Index:
		return false
	case id.tag != "":
		return id.tag == r.Tag()
	}
	return r.Changed <= id.index && !r.Protected && (sn == nil || sn.Until().IsZero())
}

// feed is one watch of the instances of a service.
type feed struct {
	*rest.Request
	s  *Service
	dq discovery.Query
	w  *sse.Writer

	told      []discovery.Endpoint // what the client has
	protected bool
	mark      listID // the id of that
}

func (f *feed) run(after listID) {
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	defer context.AfterFunc(f.s.rest.Closing(), cancel)()
	if after.index > f.s.catalog.Index() { // seen at another node that is ahead, or of another store: then a snapshot says so
		soon, stop := context.WithTimeout(ctx, aheadWait)
		_ = f.s.catalog.Wait(soon, after.index)
		stop()
	}
	sn, stirred := f.s.catalog.Stir(f.dq.Namespace, f.dq.Service)
	r := f.s.catalog.Find(f.dq)
	f.told, f.protected, f.mark = r.Endpoints, r.Protected, listID{r.Index, r.Tag()}
	turned := f.s.catalog.Turned()
	if after.upToDate(&r, sn) {
		f.fresh() // first: it holds for everything that follows
		f.w.Id(f.mark.String())
	} else {
		f.snapshot(r)
	}
	f.follow(ctx, sn, stirred, turned)
}

// snapshot sends what there is.
func (f *feed) snapshot(r discovery.Result) {
	if r.Endpoints == nil {
		r.Endpoints = []discovery.Endpoint{}
	}
	stale := f.s.catalog.Stale()
	f.w.Stale = stale > 0
	f.w.Send("snapshot", f.mark.String(), Discovered{
		Service: f.dq.Service, Namespace: f.dq.Namespace, Index: r.Index, Changed: r.Changed, Protected: r.Protected, Stale: stale.Seconds(), Instances: r.Endpoints,
	})
	f.w.Flush()
}

// fresh says that what was sent is stale, or is not any more.
func (f *feed) fresh() {
	f.w.SetStale(f.s.catalog.Stale())
	f.w.Flush()
}

func (f *feed) follow(ctx context.Context, sn *discovery.Snapshot, stirred, turned <-chan struct{}) {
	beat := time.NewTicker(sse.Heartbeat)
	defer beat.Stop()
	grow := time.NewTimer(time.Hour)
	defer grow.Stop()
	breath := time.NewTimer(0)
	defer breath.Stop()
	<-breath.C
	for f.w.Err == nil {
		grow.Stop()
		if sn != nil && !sn.Until().IsZero() {
			grow.Reset(max(time.Until(sn.Until()), growth))
		}
		select {
		case <-stirred:
		case <-grow.C:
		case <-turned:
			turned = f.s.catalog.Turned()
			f.fresh()
			continue
		case <-beat.C:
			f.fresh()
			f.tick()
			continue
		case <-ctx.Done():
			return
		}
		sn, stirred = f.s.catalog.Stir(f.dq.Namespace, f.dq.Service)
		f.delta(f.s.catalog.Find(f.dq))
		breath.Reset(pace)
		select {
		case <-breath.C:
		case <-ctx.Done():
			return
		}
	}
}

// tick sends a sign of life, and the index up to which the client has everything.
func (f *feed) tick() {
	index := f.s.catalog.Index() // before the snapshot, which has everything up to it
	if sn := f.s.catalog.Snapshot(f.dq.Namespace, f.dq.Service); index > f.mark.index && (sn == nil || sn.Changed <= f.mark.index) {
		f.mark.index = index
		f.w.Id(f.mark.String())
	}
	f.w.Comment()
}

// delta sends what is different now.
func (f *feed) delta(r discovery.Result) {
	change := f.s.deltas.between(f.told, r.Endpoints, f.dq.Plain())
	before := f.mark
	if f.mark.index = r.Index; change != same || f.protected != r.Protected {
		f.mark.tag = r.Tag()
		f.w.Event("delta", f.mark.String(), fmt.Appendf(nil, `{"index":%d,"changed":%d,"protected":%t,%s}`, r.Index, r.Changed, r.Protected, change))
		f.w.Flush()
	} else if f.mark != before {
		f.w.Id(f.mark.String()) // something changed that this client does not see, or another store has a lower one
	}
	f.told, f.protected = r.Endpoints, r.Protected
}
