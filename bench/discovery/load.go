package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/bench/internal/rig"
)

// web is one client of the HTTP API with enough connections.
var web = &http.Client{Transport: &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512}, Timeout: 30 * time.Second}

// readers ask for instances all the time, each after the answer to its last question.
const readers = 8

// fleet is what was registered.
type fleet struct {
	s    *server
	size int
	per  int
	ids  []string // of instance i
	gens []uint64 // their generations
	name string   // of the one service, when there is only one

	again atomic.Int64 // registrations that the server was too busy for, and that were made again
}

func (f *fleet) service(i int) string {
	if f.name != "" {
		return f.name
	}
	return fmt.Sprintf("svc-%d", i/f.per)
}

// crowd is what is to be registered.
type crowd struct {
	size, per  int // all in all, and of one service
	ttl, grace string
	then       func(f *fleet, i int) error // done with each that is registered; nil is nothing
}

// register registers a crowd over HTTP and returns how many per second were accepted.
func register(ctx context.Context, s *server, c crowd) (*fleet, float64, error) {
	f := &fleet{s: s, size: c.size, per: c.per, ids: make([]string, c.size), gens: make([]uint64, c.size)}
	started := time.Now()
	err := rig.Wired(ctx, s.http, 64, c.size, func(w *rig.Wire, i int) error {
		raw, err := json.Marshal(map[string]any{
			"serviceName": f.service(i), "nodeAddress": fmt.Sprintf("10.%d.%d.%d:8080", i>>16&255, i>>8&255, i&255), "zone": fmt.Sprintf("z%d", i%3),
			"payload": map[string]string{"region": "eu", "version": "1.0"}, "check": map[string]any{"type": "ttl", "ttl": c.ttl, "grace": c.grace},
		})
		if err != nil {
			return err
		}
		status, answer, err := w.Do(http.MethodPost, "/v1/register", raw)
		for try := 0; err == nil && status == http.StatusServiceUnavailable && try < 5; try++ { // as any client would
			f.again.Add(1)
			time.Sleep(time.Second)
			status, answer, err = w.Do(http.MethodPost, "/v1/register", raw)
		}
		if err == nil && status != http.StatusAccepted {
			err = fmt.Errorf("a registration was answered %d: %s", status, answer)
		}
		var at struct {
			InstanceID string `json:"instanceId"`
			Generation uint64 `json:"generation"`
		}
		if err == nil {
			err = json.Unmarshal(answer, &at)
		}
		if err != nil {
			return err
		}
		f.ids[i], f.gens[i] = at.InstanceID, at.Generation
		if c.then != nil {
			return c.then(f, i)
		}
		return nil
	})
	return f, float64(c.size) / time.Since(started).Seconds(), err
}

// call makes one request and reads its answer into out, if there is one.
func call(ctx context.Context, method, url string, in any, want int, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, raw)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// hello sends the first heartbeat of an instance, as each would do when it is registered, and not a period later. It names
// the generation: so it counts even when it is faster than the news of the registration.
func (f *fleet) hello(nc *nats.Conn, i int) error {
	return nc.Publish("instar.hb.default."+f.service(i)+"."+f.ids[i], fmt.Appendf(nil, `{"generation":%d}`, f.gens[i]))
}

// beat sends each instance's heartbeat once per period over core NATS, evenly spread, until ctx ends.
func (f *fleet) beat(ctx context.Context, nc *nats.Conn, period time.Duration) {
	const slice = 10 * time.Millisecond
	tick := time.NewTicker(slice)
	defer tick.Stop()
	started, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(float64(f.size) * float64(time.Since(started)) / float64(period)); sent < due; sent++ {
			i := sent % f.size
			_ = nc.Publish("instar.hb.default."+f.service(i)+"."+f.ids[i], nil) // a lost beat is a beat lost
		}
		_ = nc.Flush()
	}
}

// found waits until discovery finds all instances, and returns how long that took.
func (f *fleet) found(ctx context.Context) (time.Duration, error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute+time.Duration(f.size)*5*time.Millisecond)
	defer cancel()
	for i := 0; i < f.size; i += f.per {
		for {
			var a struct {
				Instances []json.RawMessage `json:"instances"`
				Changed   uint64            `json:"changed"`
			}
			if err := call(ctx, http.MethodGet, f.s.url("/v1/discover/"+f.service(i)), nil, http.StatusOK, &a); err != nil {
				return 0, err
			}
			if len(a.Instances) == min(f.per, f.size-i) {
				break
			}
			wait := fmt.Sprintf("/v1/discover/%s?index=%d&wait=5s", f.service(i), a.Changed)
			if err := call(ctx, http.MethodGet, f.s.url(wait), nil, http.StatusOK, &a); err != nil {
				return 0, fmt.Errorf("only %d instances of %s are found: %w", len(a.Instances), f.service(i), err)
			}
		}
	}
	return time.Since(started), nil
}

// reads measures discovery of one service in a closed loop. What is read is counted and not kept: the load generator
// shares the cores with the server, and its own garbage would be measured, too.
func (f *fleet) reads(ctx context.Context, clients int, duration time.Duration) (rate float64, lats []time.Duration, err error) {
	var mu sync.Mutex
	stop := time.Now().Add(duration)
	started := time.Now()
	err = rig.Wired(ctx, f.s.http, clients, clients, func(w *rig.Wire, c int) error {
		own := make([]time.Duration, 0, 1<<16)
		for n := c; time.Now().Before(stop); n++ {
			began := time.Now()
			if err := f.read(w, n*f.per%f.size); err != nil {
				return err
			}
			own = append(own, time.Since(began))
		}
		mu.Lock()
		defer mu.Unlock()
		lats = append(lats, own...)
		return nil
	})
	slices.Sort(lats)
	return float64(len(lats)) / time.Since(started).Seconds(), lats, err
}

// read reads where the service of instance i is, to the end, and makes sure that all of its instances are there.
func (f *fleet) read(w *rig.Wire, i int) error {
	path := "/v1/discover/" + f.service(i)
	status, answer, err := w.Do(http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if found := bytes.Count(answer, []byte(`"instanceId"`)); status != http.StatusOK || found != min(f.per, f.size-i/f.per*f.per) {
		return fmt.Errorf("%s: %d, %d instances", path, status, found)
	}
	return nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(10 * time.Microsecond)
}

// share is the CPU time of the server while do runs, as percent of one core.
func share(s *server, duration time.Duration) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	time.Sleep(duration) // what is measured goes on beside
	after, err := s.cpu()
	return 100 * float64(after-before) / float64(time.Since(started)), err
}

// settling is how long what registrations have caused is let end before heartbeats are measured: their deadlines pass after
// a minute, state is written to disk, caches empty.
const settling = 80 * time.Second

// stage is everything that is measured with a number of instances.
type stage struct {
	size                 int
	registered, complete float64       // per second
	perRegistration      time.Duration // CPU of the server, until the instance is found
	idle, beats          float64       // percent of one core
	perSecond            float64       // beats
	resident             int           // bytes per instance, while they beat
	resting              int           // the same when nothing happens any more
	value                int           // bytes of a stored value
	reads                float64
	perRead              time.Duration // CPU of the server
	p50, p99             time.Duration
}

func measure(ctx context.Context, o *options, size int, rest bool) (*stage, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	empty, err := s.Memory()
	if err != nil {
		return nil, err
	}
	nc, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	began := time.Now()
	used, err := s.cpu()
	if err != nil {
		return nil, err
	}
	profiled := s.profile(ctx, o, fmt.Sprintf("register-%d.pprof", size), seconds(time.Duration(size)*time.Millisecond))
	f, rate, err := register(ctx, s, crowd{size, o.perOne, "30m", "10m", func(f *fleet, i int) error { return f.hello(nc, i) }})
	if err != nil {
		return nil, err
	}
	if n := f.again.Load(); n > 0 {
		fmt.Printf("  (%d of %d registrations were answered 503 and made again)\n", n, size)
	}
	st := &stage{size: size, registered: rate, perSecond: float64(size) / 10}
	beating, cancel := context.WithCancel(ctx)
	var beats sync.WaitGroup
	defer beats.Wait()
	defer cancel()
	beats.Go(func() { f.beat(beating, nc, 10*time.Second) })
	if _, err := f.found(ctx); err != nil {
		return nil, err
	}
	st.complete = float64(size) / time.Since(began).Seconds()
	after, err := s.cpu()
	if err != nil {
		return nil, err
	}
	st.perRegistration = (after - used) / time.Duration(size)
	if err := errors.Join(profiled(), s.profile(ctx, o, fmt.Sprintf("allocated-%d.pprof", size), "allocs")()); err != nil {
		return nil, err
	}
	if _, err := share(s, settling); err != nil {
		return nil, err
	}
	if st.beats, err = share(s, o.duration); err != nil {
		return nil, err
	}
	full, err := s.Memory()
	if err != nil {
		return nil, err
	}
	st.resident = (full - empty) / size
	if st.value, err = f.valueSize(ctx, nc); err != nil {
		return nil, err
	}
	rate, lats, err := f.reads(ctx, readers, o.duration)
	if err != nil {
		return nil, err
	}
	st.reads, st.p50, st.p99 = rate, quantile(lats, 0.5), quantile(lats, 0.99)
	cancel()
	beats.Wait()
	if st.perRead, err = f.costs(ctx, o); err != nil {
		return nil, err
	}
	if st.idle, err = share(s, o.duration); err != nil || !rest {
		return st, err
	}
	calm, _, err := s.rest(ctx, 45*time.Second, 2*time.Minute)
	st.resting = (calm - empty) / size
	return st, err
}

// costs is what an answer costs the server when nothing else goes on.
func (f *fleet) costs(ctx context.Context, o *options) (time.Duration, error) {
	profiled := f.s.profile(ctx, o, fmt.Sprintf("discover-%d.pprof", f.size), seconds(o.duration-time.Second))
	used, err := f.s.cpu()
	if err != nil {
		return 0, err
	}
	_, lats, err := f.reads(ctx, readers, o.duration)
	if err != nil {
		return 0, err
	}
	after, err := f.s.cpu()
	return (after - used) / time.Duration(max(len(lats), 1)), errors.Join(err, profiled())
}

// valueSize is the size of one stored value.
func (f *fleet) valueSize(ctx context.Context, nc *nats.Conn) (int, error) {
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.KV_instances", []byte(`{"last_by_subj":"$KV.instances.default.`+f.service(0)+"."+f.ids[0]+`"}`))
	if err != nil {
		return 0, err
	}
	var a struct {
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	err = json.Unmarshal(m.Data, &a)
	return len(a.Message.Data), err
}

func load(ctx context.Context, o *options) error {
	fmt.Printf("\n%d instances of %d services\n", o.instances, o.instances/o.perOne)
	st, err := measure(ctx, o, o.instances, false)
	if err != nil {
		return err
	}
	row("registrations accepted over HTTP", fmt.Sprintf("%.0f/s", st.registered), "3,000/s")
	row("registered, persisted, heard and found", fmt.Sprintf("%.0f/s, %s of CPU for each", st.complete, st.perRegistration.Round(time.Microsecond)), "")
	row(fmt.Sprintf("CPU at %.0f heartbeats/s", st.perSecond), fmt.Sprintf("%.1f %% of one core (%.1f %% without them)", st.beats, st.idle), "under 10 %")
	row(fmt.Sprintf("discover %d of %d over HTTP, %d clients", o.perOne, o.instances, readers), fmt.Sprintf("%.0f/s, p50 %s, p99 %s, %s of CPU for each", st.reads, st.p50, st.p99, st.perRead.Round(100*time.Nanosecond)), "10,000/s, p99 under 5 ms")
	row("resident memory per instance under this load", fmt.Sprintf("%d bytes", st.resident), "")
	return nil
}
