package relay

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// points are where a relay of a mode can be stopped.
func points(mode outbox.Mode) []string {
	if mode == outbox.Claim {
		return []string{"claim", "publish", "published", "failed", "released"}
	}
	return []string{"read", "publish", "published", "park", "parked", "wait", "waited", "tried", "published parked"}
}

// committed is what an application has written, by aggregate.
type committed struct {
	mu sync.Mutex
	n  map[string][]string
}

// works appends to three aggregates, one of which has events of a type that only some relays know, and now and then one with a
// time; some transactions are rolled back. It goes on until stop is closed.
func (c *committed) works(s *shop, stop <-chan struct{}) {
	errBack := errors.New("rolled back")
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(5 * time.Millisecond):
		}
		agg, kind, later := fmt.Sprint("o-", n%3), "order.paid", ""
		switch {
		case n%50 == 7:
			agg, later = fmt.Sprint("later-", n), ", not_before => now() + interval '30 milliseconds'"
		case n%30 == 0:
			kind = "order.unheard"
		}
		err := pgx.BeginFunc(s.ctx, s.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(s.ctx, `select outbox_append('order', $1, $2, jsonb_build_object('n', $3::int)`+later+`)`, agg, kind, n); err != nil {
				return err
			}
			if n%11 == 3 {
				return errBack
			}
			return nil
		})
		if err == nil {
			c.mu.Lock()
			c.n["order/"+agg] = append(c.n["order/"+agg], fmt.Sprint(n))
			c.mu.Unlock()
		}
	}
}

// check compares what was written with the stream: every event once, in order per aggregate.
func (c *committed) check(s *shop) {
	s.t.Helper()
	total := 0
	for _, list := range c.n {
		total += len(list)
	}
	s.eventually(total)
	have := map[string][]string{}
	for _, m := range s.events() {
		agg := m.Header.Get("ce-subject")
		have[agg] = append(have[agg], strings.Trim(string(m.Data), `{"n: }`))
	}
	for agg, list := range c.n {
		require.Equal(s.t, strings.Join(list, " "), strings.Join(have[agg], " "), agg)
	}
	require.Equal(s.t, total, s.stored())
}

// whole is every way at every point; else each point is met in two of the four ways in each mode, a minute of two cores instead of two. The simulation draws them all.
var whole = flag.Bool("whole", false, "let a relay end in every way at every point")

// A relay that ends at any of its points loses nothing, repeats nothing, and keeps the order of each aggregate: killed, told to end,
// stopped for so long that another one takes over, and not hearing what the stream answers. No window of ids helps.
func TestARelayMayEndAnywhere(t *testing.T) {
	t.Parallel()
	for n, way := range []string{"killed", "ended", "overtaken", "deaf"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
				forgotten := s.forgetful()
				_, end := s.begin(mode)
				require.NoError(t, end())
				written, stop := &committed{n: map[string][]string{}}, make(chan struct{})
				var app sync.WaitGroup
				app.Go(func() { written.works(s, stop) })
				for i, point := range points(mode) {
					if !*whole && (i+n)%2 == 1 {
						continue
					}
					v := &victim{shop: s, way: way, point: point, mode: mode, knows: strings.Contains(point, "tried") || strings.Contains(point, "published")}
					v.meets(i / 2 % 2)
					if t.Failed() {
						break
					}
				}
				close(stop)
				app.Wait()
				forgotten()
				s.begin(mode)
				written.check(s)
			})
		})
	}
}

// victim is a relay that is stopped at a point.
type victim struct {
	*shop
	way, point string
	mode       outbox.Mode
	knows      bool // all types of events
}

func (v *victim) relayOf(knows bool) *Relay {
	return v.relay(v.mode, func(r *Relay) {
		r.Config.Attempts, r.Config.Lease = 10_000, time.Second
		r.Config.Batch = 20
		if !knows {
			r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
		}
	})
}

// meets lets a relay run until it comes to the point once more than so many times, and lets it end there.
func (v *victim) meets(times int) {
	v.t.Helper()
	if v.knows { // somebody has to park what it goes on with
		parking := v.run(v.relayOf(false))
		v.parks()
		_ = parking()
	}
	r := v.relayOf(v.knows)
	ctx, cancel := context.WithCancel(context.WithoutCancel(v.ctx))
	defer cancel()
	there, free, deaf := make(chan struct{}), make(chan struct{}), atomic.Bool{}
	var hits atomic.Int64
	r.tamper = func(p *sink.Publisher) {
		p.Wait = 300 * time.Millisecond
		p.Drops = func(*nats.Msg) bool { return deaf.Load() }
	}
	r.control.Hook = func(at string) {
		if at != v.point || hits.Add(1) != int64(times+1) {
			return
		}
		close(there)
		switch v.way {
		case "killed": // for good, as far as the stream is concerned
			r.NC.Close()
		case "ended":
			cancel()
		case "overtaken":
			<-free
		case "deaf":
			deaf.Store(true)
		}
	}
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	select {
	case <-there:
	case <-time.After(waitFor):
		v.t.Errorf("%s: %s was not reached", v.way, v.point)
	}
	switch v.way {
	case "deaf":
		v.eventuallyOrEnd(func() bool { return r.restarts.Load() > 0 })
		deaf.Store(false)
		v.moves(1)
	case "overtaken":
		end := v.run(v.relayOf(true))
		v.moves(10)
		_ = end()
		close(free)
		v.moves(1)
	}
	cancel()
	<-done
}

// moves waits until so many more events are stored.
func (v *victim) moves(n int) {
	v.t.Helper()
	before := v.stored()
	v.eventuallyOrEnd(func() bool { return v.stored() >= before+n })
}

func (v *victim) parks() {
	v.t.Helper()
	query := `select count(*) from outbox_parked where state = 'FAILED'`
	if v.mode == outbox.Claim {
		query = `select count(*) from outbox_event where status = 'FAILED'`
	}
	v.eventuallyOrEnd(func() bool { return v.count(query) > 0 })
}

// eventuallyOrEnd fails the test and lets it end in order.
func (v *victim) eventuallyOrEnd(ok func() bool) {
	v.t.Helper()
	if !waits(ok) {
		v.t.Errorf("%s at %s, then nothing", v.way, v.point)
	}
}
