package client_test

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client"
)

func reg(ttl time.Duration) client.Registration {
	weight := 7
	return client.Registration{
		Service: "web", NodeAddress: "127.0.0.1:80", Zone: "a", Version: "1", Tags: []string{"blue"}, Weight: &weight, Payload: map[string]string{"k": "v"},
		Check: client.Check{TTL: ttl}, Policy: client.Policy{Drain: 5 * time.Second, Rise: 2},
	}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (f *registry) beats(id string) int {
	return look(f, func() int { return f.instances["web/"+id].beats })
}

func TestRegistrationIsSentWhole(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(1500*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, map[string]any{
		"serviceName": "web", "nodeAddress": "127.0.0.1:80", "namespace": "default", "zone": "a", "version": "1", "tags": []any{"blue"}, "weight": 7.0,
		"payload": map[string]any{"k": "v"}, "check": map[string]any{"type": "ttl", "ttl": "1.5s"}, "policy": map[string]any{"drain": "5s", "rise": 2.0},
	}, look(f, func() map[string]any { return f.instances["web/"+l.InstanceID].body }))
	require.Equal(t, uint64(1), l.Generation())
}

// A registry that has stored a registration, but not processed it in time, is asked again under the same key.
func TestRegistrationIsAskedForUntilItIsProcessed(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.lazy = 2
	l, err := f.client(t).Register(within(t), reg(time.Second))
	require.NoError(t, err)
	defer l.Close()
	require.Equal(t, uint64(1), l.Generation(), "once, although it was sent three times")
	require.Len(t, look(f, func() map[string]int { return maps.Clone(f.keys) }), 1)
}

func TestBadRegistrationFailsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := newRegistry(t).client(t).Register(within(t), client.Registration{Service: "web"})
	var e *client.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, 400, e.Status)
}

func TestHeartbeatsGoOnThroughARestartOfTheRegistry(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	eventually(t, func() bool { return f.beats(l.InstanceID) > 3 })
	addr := f.server.Listener.Addr().String()
	f.stop()
	f.start(t, addr)
	seen := f.beats(l.InstanceID)
	eventually(t, func() bool { return f.beats(l.InstanceID) > seen+1 })
	require.Equal(t, uint64(1), l.Generation(), "nothing was registered twice")

	l.Report(false, "disk full")
	eventually(t, func() bool {
		return look(f, func() bool { return f.instances["web/"+l.InstanceID].status == "failing" })
	})
}

func TestDeregisteredByOthersRegistersAgain(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	f.with(func() { f.instances["web/"+l.InstanceID].State = "deregistered" })
	eventually(t, func() bool { return l.Generation() == 2 })
	f.remove("web", l.InstanceID)
	eventually(t, func() bool { return look(f, func() bool { return f.instances["web/"+l.InstanceID] != nil }) })
}

// A drain that begins while the instance is registered again ends that registration, too.
func TestDrainWhileItRegistersAgain(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	hold := make(chan struct{})
	f.with(func() { f.hold = hold })
	f.remove("web", l.InstanceID)
	eventually(t, func() bool { return look(f, func() int { return f.waiting }) > 0 })
	done := make(chan error, 1)
	go func() { done <- l.Drain(within(t)) }()
	require.Never(t, func() bool { return len(done) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
	close(hold)
	require.NoError(t, <-done)
	require.Equal(t, "deregistered", look(f, func() string { return f.instances["web/"+l.InstanceID].State }))
}

func TestReplacedEndsTheLease(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	first, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	second, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	defer second.Close()
	require.Equal(t, first.InstanceID, second.InstanceID)
	<-first.Done()
	require.ErrorIs(t, first.Err(), client.ErrReplaced)
	require.ErrorIs(t, first.Drain(within(t)), client.ErrReplaced, "it must not end its successor")
	require.Equal(t, "active.healthy", look(f, func() string { return f.instances["web/"+second.InstanceID].State }))
}

// Only a registry that says so has replaced the instance. What is in progress is asked for again.
func TestOtherConflictsReplaceNobody(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.lazy, f.busy, f.parked = 1, []string{"/register", "/graceful-shutdown"}, 2
	begun := time.Now()
	l, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err, "it was stored, and is asked for while it is in progress")
	require.GreaterOrEqual(t, time.Since(begun), time.Second, "after what Retry-After says")
	require.Equal(t, uint64(1), l.Generation())
	eventually(t, func() bool { return f.beats(l.InstanceID) > 1 }, "after heartbeats that meet a parked instance")
	require.NoError(t, l.Err())
	require.NoError(t, l.Drain(within(t)))
	require.Equal(t, "deregistered", look(f, func() string { return f.instances["web/"+l.InstanceID].State }))
}

// One that is stored, and not processed in all the time that is waited for it, is a registration.
func TestRegistrationThatStaysInProgress(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	f.lazy, f.busy = 1, slices.Repeat([]string{"/register"}, 10)
	l, err := f.client(t).Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	require.Zero(t, l.Generation(), "nobody knows it yet")
	eventually(t, func() bool { return f.beats(l.InstanceID) > 0 })
}

func TestFailsOver(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	c := f.client(t)
	c.URLs = []string{"http://" + gone.Addr().String(), f.server.URL}
	l, err := c.Register(within(t), reg(60*time.Millisecond))
	require.NoError(t, err)
	defer l.Close()
	r, err := c.Resolve(within(t), "web", client.Options{})
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, []string{l.InstanceID}, ids(r.Endpoints()))
}

func TestDrainWaitsForWatchersAndRequests(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(10*time.Second))
	require.NoError(t, err)
	f.with(func() { f.watchers["web/slow"] = 1 })
	left := make(chan int, 1)
	left <- 1
	l.InFlight(func() int { n := <-left; left <- n; return n })
	done := make(chan error, 1)
	go func() { done <- l.Drain(within(t)) }()
	state := func() string { return look(f, func() string { return f.instances["web/"+l.InstanceID].State }) }
	eventually(t, func() bool { return state() == "draining" })
	index := look(f, func() uint64 { return f.index })
	eventually(t, func() bool {
		return look(f, func() bool { n := f.instances["web/"+l.InstanceID].inFlight; return n != nil && *n == 1 })
	})
	f.with(func() { f.watchers["web/slow"] = index })
	require.Empty(t, done)
	<-left
	left <- 0
	require.NoError(t, <-done)
	require.Equal(t, "deregistered", state())
}

func TestDrainSaysWhenTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(time.Second))
	require.NoError(t, err)
	f.with(func() { f.down = true })
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	err = l.Drain(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "503")
}

// What ends a process has a bound of its own: the drain and the requests that are left, together.
func TestDrainWithinItsTime(t *testing.T) {
	t.Parallel()
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(time.Second))
	require.NoError(t, err)
	f.with(func() { f.watchers["web/silent"] = 1 }) // it never confirms
	block, begun := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-block }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(block) })
	go func() { _, _ = http.Get(server.URL) }() // it is cut off
	<-begun
	over, cancel := context.WithCancel(context.Background())
	cancel()
	at := time.Now()
	err = client.DrainWithin(over, 500*time.Millisecond, l, server.Config)
	require.ErrorContains(t, err, "deregistered")
	require.Less(t, time.Since(at), 3*time.Second)
}

// Not parallel: it sends a signal to the process.
func TestDrainOnSignal(t *testing.T) {
	f := newRegistry(t)
	l, err := f.client(t).Register(within(t), reg(time.Second))
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: l.Handler(http.NotFoundHandler()), ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	done := make(chan error, 1)
	go func() { done <- client.DrainOnSignal(context.Background(), l, server, syscall.SIGUSR1) }()
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	hold := make(chan os.Signal, 8) // until DrainOnSignal listens, the signal must not kill the test
	notify(hold, syscall.SIGUSR1)
	for over := false; !over; {
		require.NoError(t, self.Signal(syscall.SIGUSR1))
		<-hold
		select {
		case err := <-done:
			require.NoError(t, err)
			over = true
		case <-time.After(300 * time.Millisecond):
		}
	}
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.Equal(t, "deregistered", look(f, func() string { return f.instances["web/"+l.InstanceID].State }))
}
