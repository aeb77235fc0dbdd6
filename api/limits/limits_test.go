package limits_test

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/limits"
)

func TestPool(t *testing.T) {
	t.Parallel()
	p := limits.NewPool("seats", limits.Bound{All: 3, Each: 2})
	take := func(client string) func() {
		leave, err := p.Take(client)
		require.NoError(t, err)
		return leave
	}
	refused := func(client string, own bool, bound int) {
		_, err := p.Take(client)
		var full *limits.Full
		require.ErrorAs(t, err, &full)
		require.Equal(t, limits.Full{Pool: "seats", PerClient: own, Bound: bound}, *full)
	}
	first := take("a")
	take("a")
	refused("a", true, 2)
	take("b")
	refused("c", false, 3)
	first()
	first() // once
	require.Equal(t, 2, p.Held())
	take("c")
	refused("a", false, 3)
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(limits.Counts{Pools: []*limits.Pool{p}, Rates: []*limits.Rate{nil}}))
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for _, want := range []string{`bound{limit="seats"} 3`, `held{limit="seats"} 3`, `refused_total{limit="seats",of="all"} 2`, `refused_total{limit="seats",of="client"} 1`} {
		require.Contains(t, page.Body.String(), "\ninstar_limit_"+want+"\n")
	}
	none := limits.NewPool("none", limits.Bound{})
	for range 100 {
		_, err := none.Take("a")
		require.NoError(t, err)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	var none *limits.Rate
	_, ok := none.Allow("a")
	require.True(t, ok)
	require.Nil(t, limits.NewRate("off", limits.Pace{Burst: 5}, nil))
	r := limits.NewRate("slow", limits.Pace{PerSecond: 1, Burst: 3}, map[string]limits.Pace{"many": {PerSecond: 1, Burst: 50}, "any": {}})
	allowed := 0
	for range 100 {
		wait, ok := r.Allow("a")
		if ok {
			allowed++
			continue
		}
		require.Positive(t, wait)
		require.LessOrEqual(t, wait, time.Second)
	}
	require.InDelta(t, 3, allowed, 2, "and what comes in the time that the test takes")
	_, ok = r.Allow("b")
	require.True(t, ok, "others are not slowed down")
	for i := range 5000 { // as many as are not forgotten while they are remembered for something
		r.Allow(fmt.Sprint("made up ", i))
	}
	_, ok = r.Allow("a")
	require.False(t, ok, "who has asked much is not forgotten")
	count := func(r *limits.Rate, client string) (n int) {
		for range 100 {
			if _, ok := r.Allow(client); ok {
				n++
			}
		}
		return n
	}
	require.InDelta(t, 50, count(r, "many"), 5)
	require.Equal(t, 100, count(r, "any"))
	few := limits.NewRate("own", limits.Pace{}, map[string]limits.Pace{"few": {PerSecond: 2}})
	require.InDelta(t, 2, count(few, "few"), 2)
	require.Equal(t, 100, count(few, "others"))
}

// However many ask at once, so much is let through as the pace says, and what is refused costs nothing.
func TestRateOfManyAtOnce(t *testing.T) {
	t.Parallel()
	const workers = 64
	for _, pace := range []limits.Pace{{PerSecond: 100, Burst: 20}, {PerSecond: 1_000_000, Burst: 1000}} {
		r := limits.NewRate("busy", pace, nil)
		var allowed atomic.Int64
		ask := func() bool {
			wait, ok := r.Allow("a")
			if ok {
				allowed.Add(1)
			} else if wait <= 0 || wait > time.Second/time.Duration(pace.PerSecond)+time.Microsecond {
				t.Errorf("told to wait for %s", wait)
			}
			return ok
		}
		before := time.Now()
		require.True(t, ask())
		begun := time.Now()
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for !t.Failed() && time.Since(begun) < 150*time.Millisecond {
					ask()
				}
			})
		}
		all.Wait()
		earned := func(since time.Time) float64 { return time.Since(since).Seconds() * float64(pace.PerSecond) }
		if least := earned(begun); pace.PerSecond == 100 { // else what nobody asks for within a millisecond is lost
			for ask() {
			}
			require.GreaterOrEqual(t, float64(allowed.Load()), float64(pace.Burst)+least-1)
		}
		require.LessOrEqual(t, float64(allowed.Load()), float64(pace.Burst)+earned(before))
	}
}

// One client has much to do, and the one worker there is has begun with it. Another client is next all the same.
func TestClientsTakeTurns(t *testing.T) {
	t.Parallel()
	q := limits.NewQueue(limits.NewPool("jobs", limits.Bound{All: 20, Each: 12}), limits.Turns{All: 1})
	var order []string
	var all sync.WaitGroup
	join := func(client, name string) {
		p, err := q.Join(client)
		require.NoError(t, err)
		all.Go(func() {
			if err := p.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			order = append(order, name)
			p.Leave()
		})
	}
	first, err := q.Take(t.Context(), "a")
	require.NoError(t, err)
	for i := range 11 {
		join("a", fmt.Sprint("a", i))
	}
	var full *limits.Full
	_, err = q.Join("a")
	require.ErrorAs(t, err, &full)
	require.True(t, full.PerClient)
	for i := range 2 {
		join("b", fmt.Sprint("b", i))
	}
	join("c", "c0")
	first()
	all.Wait()
	require.Equal(t, "b0 c0 a0 b1 a1 a2 a3 a4 a5 a6 a7 a8 a9 a10", strings.Join(order, " "))
	join("a", "again")
	all.Wait()
	require.Len(t, order, 15)
}

func TestClient(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "pipe": "pipe", "": "",
	} {
		require.Equal(t, want, limits.Client(address), address)
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := limits.NewPool("connections", limits.Bound{All: 2})
	bound := limits.Listen(l, p, limits.NewPool("spare", limits.Bound{All: 2, Each: 1}))
	defer bound.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := bound.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial()
	first := <-accepted
	dial()
	<-accepted
	require.NoError(t, limits.Over(first))
	dial()
	spare := <-accepted
	var full *limits.Full
	require.True(t, errors.As(limits.Over(spare), &full))
	closed := dial()
	require.NoError(t, closed.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = closed.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it was closed, and not left waiting")
	from, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", l.Addr().String())
	if err == nil { // else this machine has one loopback address only
		other := <-accepted
		require.True(t, errors.As(limits.Over(other), &full), "nobody has all that is left")
		require.NoError(t, other.Close())
		require.NoError(t, from.Close())
	}
	require.NoError(t, first.Close())
	_ = first.Close()
	require.Equal(t, 1, p.Held())
	dial()
	require.NoError(t, limits.Over(<-accepted), "there is a place again")
}
