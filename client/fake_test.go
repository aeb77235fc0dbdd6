package client_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// registry is the HTTP contract of discovery, in memory. An instance is found as soon as it is registered; a drain ends
// when all watchers of its service have confirmed it and it says that nothing is under way.
type registry struct {
	mu        sync.Mutex
	index     uint64
	instances map[string]*instance // by service/id
	watchers  map[string]uint64    // by service/watcher
	keys      map[string]int
	changed   chan struct{}
	cut       chan struct{} // closed: all watches break
	down      bool
	snapshots int
	resumes   []string
	behind    float64       // seconds that it says it is behind
	history   string        // of its store, which is in the ids of its watches
	old       bool          // it does not know ids with a history
	silent    chan struct{} // watches say nothing until its end; nil: they do
	hold      chan struct{} // registrations wait for its end; nil: they do not
	waiting   int           // registrations that did
	lazy      int           // registrations that are answered before they are processed
	busy      []string      // requests, by path, that are answered as if their key were of one that is in progress
	parked    int           // heartbeats that are answered as if the value of the instance could not be read

	server *httptest.Server
}

type instance struct {
	client.Endpoint
	service   string
	drainedAt uint64
	inFlight  *int
	status    string
	beats     int
	body      map[string]any
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	f := emptyRegistry()
	f.start(t, "127.0.0.1:0")
	t.Cleanup(f.stop)
	return f
}

func emptyRegistry() *registry {
	return &registry{index: 1, instances: map[string]*instance{}, watchers: map[string]uint64{}, keys: map[string]int{}, changed: make(chan struct{}), cut: make(chan struct{})}
}

func (f *registry) start(t *testing.T, addr string) {
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	f.server = httptest.NewUnstartedServer(f.handler())
	_ = f.server.Listener.Close()
	f.server.Listener = l
	f.server.Start()
}

func (f *registry) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/register", f.register)
	mux.HandleFunc("PUT /v1/services/{service}/instances/{id}/heartbeat", f.beat)
	mux.HandleFunc("POST /v1/services/{service}/instances/{id}/graceful-shutdown", f.shutdown)
	mux.HandleFunc("GET /v1/services/{service}/instances/{id}", f.get)
	mux.HandleFunc("POST /v1/services/{service}/watchers/{watcher}", f.confirm)
	mux.HandleFunc("GET /v1/discover/{service}/watch", f.watch)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		down := f.down
		f.mu.Unlock()
		if down {
			problem(w, 503, "unavailable", "")
			return
		}
		if f.inProgress(r.URL.Path) {
			w.Header().Set("Retry-After", "1")
			problem(w, 409, "idempotency-in-progress", "")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// inProgress takes a path from those that are busy.
func (f *registry) inProgress(path string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.busy, func(part string) bool { return strings.HasSuffix(path, part) })
	if i >= 0 && f.lazy <= 0 {
		f.busy = slices.Delete(f.busy, i, i+1)
		return true
	}
	return false
}

func (f *registry) stop() {
	f.breakWatches()
	f.server.CloseClientConnections()
	f.server.Close()
}

// with does something under the lock and tells the watches.
func (f *registry) with(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *registry) breakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// put adds an instance, or changes one.
func (f *registry) put(service, id, address string, weight int) {
	f.with(func() {
		f.index++
		f.instances[service+"/"+id] = &instance{service: service, Endpoint: client.Endpoint{InstanceID: id, NodeAddress: address, Weight: weight, State: "active.healthy", Generation: 1, Revision: f.index}}
	})
}

func (f *registry) remove(service, id string) {
	f.with(func() { f.index++; delete(f.instances, service+"/"+id) })
}

func problem(w http.ResponseWriter, status int, code, state string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "code": code, "title": "no", "currentState": state})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (f *registry) register(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	service, _ := body["serviceName"].(string)
	address, _ := body["nodeAddress"].(string)
	if service == "" || address == "" {
		problem(w, 400, "incomplete", "")
		return
	}
	if hold := look(f, func() chan struct{} { return f.hold }); hold != nil {
		f.with(func() { f.waiting++ })
		<-hold
	}
	id, _ := body["instanceId"].(string)
	if id == "" {
		id = "id-" + fmt.Sprintf("%x", address)
	}
	var out map[string]any
	f.with(func() {
		key := r.Header.Get("Idempotency-Key")
		it := f.instances[service+"/"+id]
		if f.keys[key]++; f.keys[key] == 1 {
			f.index++
			var generation uint64 = 1
			if it != nil {
				generation = it.Generation + 1
			}
			it = &instance{service: service, body: body, Endpoint: client.Endpoint{InstanceID: id, NodeAddress: address, Weight: 100, State: "active.healthy", Generation: generation, Revision: f.index}}
			f.instances[service+"/"+id] = it
		}
		if f.lazy--; f.lazy >= 0 {
			out = map[string]any{"instanceId": id, "outcome": "stored"}
			return
		}
		out = map[string]any{"instanceId": id, "generation": it.Generation, "revision": it.Revision, "state": it.State, "outcome": "applied"}
	})
	answer(w, 202, out)
}

func (f *registry) beat(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Generation uint64
		Status     string
		InFlight   *int
	}
	_ = json.NewDecoder(r.Body).Decode(&b)
	code, kind := 204, "no"
	f.with(func() {
		it := f.instances[r.PathValue("service")+"/"+r.PathValue("id")]
		switch {
		case it == nil:
			code = 404
		case f.parked > 0:
			code, kind = 409, "entity-parked"
			f.parked--
		case it.State == "deregistered":
			code = 410
		case b.Generation != 0 && b.Generation < it.Generation:
			code, kind = 409, "guard-rejected"
		default:
			it.beats++
			it.inFlight, it.status = b.InFlight, b.Status
			f.settle(it)
		}
	})
	if code != 204 {
		problem(w, code, kind, "")
		return
	}
	w.WriteHeader(code)
}

// settle ends a drain that may end. The lock is held.
func (f *registry) settle(it *instance) {
	if it.State != "draining" || it.inFlight != nil && *it.inFlight > 0 {
		return
	}
	for name, index := range f.watchers {
		if name[:len(it.service)+1] == it.service+"/" && index < it.drainedAt {
			return
		}
	}
	f.index++
	it.State, it.Revision = "deregistered", f.index
}

func (f *registry) shutdown(w http.ResponseWriter, r *http.Request) {
	var b struct{ Generation uint64 }
	_ = json.NewDecoder(r.Body).Decode(&b)
	code, state := 200, ""
	f.with(func() {
		it := f.instances[r.PathValue("service")+"/"+r.PathValue("id")]
		switch {
		case it == nil:
			code = 404
		case it.State != "active.healthy" || b.Generation != 0 && b.Generation != it.Generation:
			code, state = 409, it.State
		default:
			f.index++
			it.State, it.Revision, it.drainedAt = "draining", f.index, f.index
			f.settle(it)
		}
	})
	if code != 200 {
		problem(w, code, "guard-rejected", state)
		return
	}
	answer(w, code, map[string]any{"outcome": "applied"})
}

func (f *registry) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	it := f.instances[r.PathValue("service")+"/"+r.PathValue("id")]
	if it == nil {
		problem(w, 404, "not-found", "")
		return
	}
	answer(w, 200, map[string]any{"state": it.State, "generation": it.Generation})
}

func (f *registry) confirm(w http.ResponseWriter, r *http.Request) {
	var b struct{ Index uint64 }
	_ = json.NewDecoder(r.Body).Decode(&b)
	f.with(func() {
		watcher := r.PathValue("service") + "/" + r.PathValue("watcher")
		f.watchers[watcher] = max(f.watchers[watcher], b.Index) // what a cancelled call said may come late
		for _, it := range f.instances {
			f.settle(it)
		}
	})
	w.WriteHeader(204)
}

// found are the instances of a service. The lock is held.
func (f *registry) found(service string) map[string]client.Endpoint {
	all := map[string]client.Endpoint{}
	for _, it := range f.instances {
		if it.service == service && it.State == "active.healthy" {
			all[it.InstanceID] = it.Endpoint
		}
	}
	return all
}

func (f *registry) watch(w http.ResponseWriter, r *http.Request) {
	service, last := r.PathValue("service"), r.Header.Get("Last-Event-ID")
	if look(f, func() bool { return f.old }) && strings.Contains(last, "-") {
		problem(w, 422, "validation", "")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	f.mu.Lock()
	told, index, changed, cut := f.found(service), f.index, f.changed, f.cut
	f.resumes = append(f.resumes, last)
	silent := f.silent
	same, behind, history := last == place(index, f.history), f.behind, f.history
	if !same {
		f.snapshots++
	}
	f.mu.Unlock()
	if silent != nil {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-silent:
		case <-r.Context().Done():
			return
		}
	}
	stale := func() { event(w, "stale", place(index, history), map[string]any{"staleSeconds": behind}) }
	if same {
		if behind > 0 {
			stale()
		}
		_, _ = fmt.Fprintf(w, "id: %s\n\n", place(index, history))
	} else {
		list := []client.Endpoint{}
		for _, e := range told {
			list = append(list, e)
		}
		event(w, "snapshot", place(index, history), map[string]any{"service": service, "index": index, "instances": list, "staleSeconds": behind})
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
		f.mu.Lock()
		now := f.found(service)
		index, changed = f.index, f.changed
		was := behind
		behind = f.behind
		f.mu.Unlock()
		if was != behind {
			stale()
			continue
		}
		put, remove := []client.Endpoint{}, []string{}
		for id, e := range now {
			if was, ok := told[id]; !ok || was.Revision != e.Revision {
				put = append(put, e)
			}
		}
		for id := range told {
			if _, ok := now[id]; !ok {
				remove = append(remove, id)
			}
		}
		told = now
		if len(put)+len(remove) > 0 {
			event(w, "delta", place(index, history), map[string]any{"index": index, "put": put, "remove": remove})
		} else {
			_, _ = fmt.Fprintf(w, ": nothing\n\nid: %s\n\n", place(index, history))
		}
	}
}

// place is the id of an event.
func place(index uint64, history string) string {
	if history == "" {
		return fmt.Sprint(index)
	}
	return fmt.Sprintf("%d-%s", index, history)
}

func event(w http.ResponseWriter, name, id string, v any) {
	raw, _ := json.Marshal(v)
	_, _ = fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, id, raw)
}

// client is a client with connections of its own.
func (f *registry) client(t *testing.T) *client.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &client.Client{URLs: []string{f.server.URL}, HTTP: &http.Client{Transport: tr}}
}

// look reads under the lock.
func look[T any](f *registry, read func() T) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return read()
}

func ids(all []client.Endpoint) []string {
	out := []string{}
	for _, e := range all {
		out = append(out, e.InstanceID)
	}
	slices.Sort(out)
	return out
}

func eventually(t *testing.T, holds func() bool, text ...any) {
	t.Helper()
	require.Eventually(t, holds, 10*time.Second, 2*time.Millisecond, text...)
}
