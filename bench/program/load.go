package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/bench/internal/rig"
)

const (
	overNATS = "NATS"
	overHTTP = "HTTP"

	keyedNATS = "NATS key" // with an Idempotency-Key of its own for each command
	keyedHTTP = "HTTP key"

	registering = "register"
	settling    = "to READY" // a service is created, and the answer waits until it is ready
)

// contender is a program that is measured.
type contender struct {
	name      string
	http      string         // address
	busy      int            // times that each entity is changed before anything is measured
	hosts     []string       // of all nodes of a cluster; http is the first
	processes []*rig.Process // the server, and the handler if it has one
	members   []*rig.Process // the other nodes of a cluster, whose CPU time is the server's
	closers   []func()       // of connections

	// These have one transition made of entity e, the nth of its client, and wait for the answer. What cannot be done is nil.
	label   func(w *rig.Wire, e, n int, key string) error
	request func(client, e, n int, key string) error
	keys    bool // it takes a key, which may be empty

	stored   func(w *rig.Wire, e int) (int, error) // transitions that are read back
	before   []int                                 // those from before the first label, by entity
	answered []atomic.Int64                        // labels since then

	register   func(w *rig.Wire, client, e int) error // registers instance e
	instances  func(w *rig.Wire) (int, error)         // those that are read back
	started    atomic.Int64                           // the last instance
	settle     func(w *rig.Wire, e int) error         // creates service e, and waits until it is ready
	value      func() (*nats.Msg, error)              // that of the first service, as its bucket tells it
	settled    atomic.Int64                           // the last of those services
	registered atomic.Int64                           // instances that were answered
	keyed      atomic.Int64                           // keys that were used
}

// offers reports whether the program can be asked that way.
func (c *contender) offers(way string) bool {
	switch way {
	case overNATS:
		return c.request != nil
	case overHTTP:
		return c.label != nil
	case registering:
		return c.register != nil
	case settling:
		return c.settle != nil
	}
	return c.keys
}

// ask has one thing done and waits for the answer.
func (c *contender) ask(w *rig.Wire, way string, client, e, n int) (err error) {
	if way == settling {
		return c.settle(w, int(c.settled.Add(1)))
	}
	done := &c.registered
	switch way {
	case overNATS, keyedNATS:
		err, done = c.request(client, e, n, c.key(way)), &c.answered[e]
	case overHTTP, keyedHTTP:
		err, done = c.label(w, e, n, c.key(way)), &c.answered[e]
	default:
		err = c.register(w, client, e)
	}
	if err == nil {
		done.Add(1)
	}
	return err
}

// key is one that no command has had, or none.
func (c *contender) key(way string) string {
	if way != keyedNATS && way != keyedHTTP {
		return ""
	}
	return strconv.FormatInt(c.keyed.Add(1), 10)
}

// fill makes the entities what they are after a while.
func (c *contender) fill(ctx context.Context) error {
	n := len(c.answered)
	return rig.Wired(ctx, c.http, 64, n*c.busy, func(w *rig.Wire, i int) error {
		return c.ask(w, overHTTP, 0, i%n, i/n)
	})
}

// load runs so many clients, each with one request under way, for the duration after a warm-up.
func (c *contender) load(ctx context.Context, way string, clients int, duration time.Duration) (f figures, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var measuring, stop atomic.Bool
	lats := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			w := &rig.Wire{Host: c.http}
			if len(c.hosts) > 0 {
				w.Host = c.hosts[client%len(c.hosts)]
			}
			defer w.Close()
			random := rand.New(rand.NewPCG(uint64(client), uint64(clients))) // the same for all contenders
			for n := 0; !stop.Load() && ctx.Err() == nil; n++ {
				began, e := time.Now(), 0
				if way == registering {
					e = int(c.started.Add(1))
				} else {
					e = random.IntN(len(c.answered))
				}
				if err := c.ask(w, way, client, e, n); err != nil {
					cancel(fmt.Errorf("client %d: %w", client, err))
					return
				}
				if measuring.Load() {
					lats[client] = append(lats[client], time.Since(began))
				}
			}
		})
	}
	pause(ctx, duration/4)
	before, err1 := c.spent()
	began := time.Now()
	measuring.Store(true)
	pause(ctx, duration)
	measuring.Store(false)
	f.took = time.Since(began)
	after, err2 := c.spent()
	stop.Store(true)
	all.Wait()
	if err := cmp.Or(context.Cause(ctx), err1, err2); err != nil {
		return f, err
	}
	f.latencies = slices.Concat(lats...)
	slices.Sort(f.latencies)
	for i := range before {
		f.cpu[i] = (after[i] - before[i]) / time.Duration(max(len(f.latencies), 1))
	}
	return f, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// cpu is CPU time: of the server, of its handler, of the load generator.
type cpu [3]time.Duration

func (c *contender) spent() (s cpu, err error) {
	for i, p := range c.processes {
		if s[i], err = p.CPU(); err != nil {
			return s, err
		}
	}
	for _, p := range c.members {
		more, err := p.CPU()
		if err != nil {
			return s, err
		}
		s[0] += more
	}
	var r syscall.Rusage
	err = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	s[2] = time.Duration(r.Utime.Nano() + r.Stime.Nano())
	return s, err
}

// peak is the most memory that the servers had, in bytes.
func (c *contender) peak() (most int, err error) {
	for _, p := range append([]*rig.Process{c.processes[0]}, c.members...) {
		n, err := p.Peak()
		if err != nil {
			return 0, err
		}
		most = max(most, n)
	}
	return most, nil
}

// count reads back how many transitions each entity has made.
func (c *contender) count(ctx context.Context) ([]int, error) {
	all := make([]int, len(c.answered))
	return all, rig.Wired(ctx, c.http, 8, len(all), func(w *rig.Wire, e int) (err error) {
		all[e], err = c.stored(w, e)
		return err
	})
}

// check compares what is stored with what was answered, entity by entity.
func (c *contender) check(ctx context.Context) (answered, lost, extra int, err error) {
	now, err := c.count(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	compare := func(n, has int) {
		answered, lost, extra = answered+n, lost+max(0, n-has), extra+max(0, has-n)
	}
	for e := range now {
		compare(int(c.answered[e].Load()), now[e]-c.before[e])
	}
	if c.instances == nil {
		return answered, lost, extra, nil
	}
	w := &rig.Wire{Host: c.http}
	defer w.Close()
	n, has := int(c.registered.Load()), -1
	for range 100 { // counts follow what is stored
		if has, err = c.instances(w); err != nil || has >= n {
			break
		}
		pause(ctx, 50*time.Millisecond)
	}
	compare(n, has)
	return answered, lost, extra, err
}
