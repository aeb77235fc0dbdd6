package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/internal/wait"
)

const (
	demoService = "web"
	demoTimeout = 4 * time.Second // of a call
)

// demoWeb is a server of the demo. It can be started again after it has ended.
type demoWeb struct {
	name     string
	check    client.Check
	registry *client.Client

	addr   string
	lease  *client.Lease
	server *http.Server
	served chan error
	thaw   func()

	delay  atomic.Int64 // nanoseconds
	flaps  atomic.Bool
	frozen atomic.Bool
	probes atomic.Int64
}

func (s *demoWeb) start(ctx context.Context) error {
	var lc net.ListenConfig
	if s.addr == "" {
		s.addr = "127.0.0.1:0"
	}
	l, err := lc.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	s.addr = l.Addr().String()
	s.server = &http.Server{ReadHeaderTimeout: 5 * time.Second}
	thawed := make(chan struct{})
	s.thaw = sync.OnceFunc(func() { close(thawed) })
	var counted atomic.Pointer[http.Handler] // a probe may come before the registration is answered
	s.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.frozen.Load() {
			<-thawed
		}
		if h := counted.Load(); h != nil && r.URL.Path != "/health" {
			(*h).ServeHTTP(w, r)
			return
		}
		s.health(w)
	})
	s.served = make(chan error, 1)
	go func() { s.served <- s.server.Serve(l) }()
	s.lease, err = s.registry.Register(ctx, client.Registration{
		Service: demoService, NodeAddress: s.addr, InstanceID: s.name, Check: s.check, Payload: map[string]string{"name": s.name},
	})
	if err != nil {
		return errors.Join(err, s.server.Close())
	}
	h := s.lease.Handler(http.HandlerFunc(s.work))
	counted.Store(&h)
	return nil
}

func (s *demoWeb) work(w http.ResponseWriter, r *http.Request) {
	wait.For(r.Context(), time.Duration(s.delay.Load())) // this is the work
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprintf(w, "%s", s.name)
}

func (s *demoWeb) health(w http.ResponseWriter) {
	if n := s.probes.Add(1); s.flaps.Load() && n%5 < 3 { // three failures, two passes: one probe that is lost is no flapping
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}
}

// drain is what client.DrainOnSignal does.
func (s *demoWeb) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.lease.Drain(ctx); err != nil {
		return err
	}
	if err := s.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("%s does not end: %w", s.name, err)
	}
	<-s.served
	s.served = nil
	return nil
}

// freeze stops everything that the process does, as SIGSTOP would.
func (s *demoWeb) freeze() {
	s.frozen.Store(true)
	s.lease.Close()
}

// kill ends it as kill -9 would.
func (s *demoWeb) kill() {
	s.thaw()
	if s.lease != nil {
		s.lease.Close()
	}
	_ = s.server.Close()
	if s.served != nil {
		<-s.served
		s.served = nil
	}
}

// demoCount is what the callers met during an act.
type demoCount struct {
	calls, failed int
	by            map[string]int // answers, by server
	first         error
	open          sync.WaitGroup // calls under way
}

func (c *demoCount) part(name string) float64 { return float64(c.by[name]) / float64(max(c.calls, 1)) }

// demoCallers call all the time.
type demoCallers struct {
	http    *http.Client
	end     context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	now *demoCount
}

func startCallers(ctx context.Context, registry *client.Client) *demoCallers {
	transport := registry.Transport(nil)
	transport.Options.Balance = client.LeastInFlight
	ctx, cancel := context.WithCancel(ctx)
	c := &demoCallers{http: &http.Client{Transport: transport, Timeout: demoTimeout}, now: &demoCount{by: map[string]int{}}}
	c.end = sync.OnceFunc(func() {
		cancel()
		c.running.Wait()
		transport.Close()
	})
	for i := range 4 {
		c.running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				c.mu.Lock()
				act := c.now
				act.open.Add(1)
				c.mu.Unlock()
				name, err := c.call(ctx, []string{http.MethodPost, http.MethodGet}[n%2])
				if ctx.Err() == nil {
					c.count(act, name, err)
				}
				act.open.Done()
				_ = wait.Pause(ctx, 2*time.Millisecond)
			}
		})
	}
	return c
}

func (c *demoCallers) call(ctx context.Context, method string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+demoService+".instar/", strings.NewReader("hello"))
	if err != nil {
		return "", err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(raw), err
}

// count counts a call for the act in which it began.
func (c *demoCallers) count(act *demoCount, name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	act.calls++
	if err != nil {
		act.failed++
		if act.first == nil {
			act.first = err
		}
		return
	}
	act.by[name]++
}

// begin begins an act, and returns what happened in the one before, once the calls of that one are over.
func (c *demoCallers) begin() *demoCount {
	c.mu.Lock()
	before := c.now
	c.now = &demoCount{by: map[string]int{}}
	c.mu.Unlock()
	before.open.Wait()
	return before
}

func (c *demoCallers) stop() { c.end() }

// readJSON reads an answer that must be 200.
func readJSON(c *http.Client, req *http.Request, v any) error {
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}
