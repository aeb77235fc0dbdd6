package worker

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// freezer connects to a server; nothing comes or goes while it is locked, or nothing comes.
type freezer struct {
	*embedded.Server
	sync.RWMutex
	deaf bool
}

func (f *freezer) InProcessConn() (net.Conn, error) {
	c, err := f.Server.InProcessConn()
	return frozen{c, f}, err
}

type frozen struct {
	net.Conn
	f *freezer
}

func (c frozen) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.RLock()
	defer c.f.RUnlock()
	return n, err
}

func (c frozen) Write(b []byte) (int, error) {
	if c.f.deaf {
		return c.Conn.Write(b)
	}
	c.f.RLock()
	defer c.f.RUnlock()
	return c.Conn.Write(b)
}

// A worker that was frozen for longer than the ack wait, and is stopped then, gives nothing back: another one has its task, and does it.
func TestWhatAnotherOneHasIsNotGivenBack(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := &freezer{Server: w.Server}
	nc, err := streams.Connect(streams.ConnectOptions{Server: f, Name: "frozen", Log: w.Log})
	require.NoError(t, err)
	defer nc.Close()
	begun, end := make(chan string, 2), make(chan struct{})
	perform := func(name string) handler {
		return func(ctx context.Context, _ Task[how]) (how, error) {
			begun <- name
			select {
			case <-ctx.Done():
			case <-end:
			}
			return how{name}, nil
		}
	}
	stop := w.serve(Options{NC: nc, Grace: time.Millisecond}, perform("first"))
	w.ask("a", "x")
	require.Equal(t, "first", <-begun)
	f.Lock()
	w.serve(Options{}, perform("second"))
	require.Equal(t, "second", <-begun)
	acks, err := w.NC.SubscribeSync("$JS.ACK.>")
	require.NoError(t, err)
	require.NoError(t, w.NC.Flush())
	f.Unlock()
	stop()
	require.NoError(t, w.NC.Flush())
	for n, _, _ := acks.Pending(); n > 0; n-- {
		m, err := acks.NextMsg(time.Second)
		require.NoError(t, err)
		require.False(t, strings.HasPrefix(string(m.Data), "-NAK"), "it takes the task from the second one")
	}
	close(end)
	require.Equal(t, "second", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
}

// A task that was on its way for longer than the ack wait, as where the network was away, is with another worker when it arrives: it is neither begun nor given back.
func TestWhatComesTooLateIsLeft(t *testing.T) {
	t.Parallel()
	w := setup(t)
	f := &freezer{Server: w.Server, deaf: true}
	nc, err := streams.Connect(streams.ConnectOptions{Server: f, Name: "deaf", Log: w.Log})
	require.NoError(t, err)
	defer nc.Close()
	begun, end := make(chan string, 64), make(chan struct{})
	perform := func(name string) handler {
		return func(_ context.Context, t Task[how]) (how, error) {
			begun <- name + " " + t.ID
			if t.ID == "a" {
				<-end
			}
			return how{name}, nil
		}
	}
	stop := w.serve(Options{NC: nc}, perform("first"))
	w.ask("well", "x")
	require.Equal(t, "first well", <-begun)
	w.Eventually("it is acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
	f.Lock()
	w.ask("a", "x")
	w.Eventually("it was sent to the first one", func() bool {
		c, err := w.JS.Consumer(w.Ctx, w.Names.Stream(streams.EffectStream), "fx-thing-work")
		return err == nil && c.CachedInfo().NumAckPending > 0
	})
	w.serve(Options{}, perform("second"))
	require.Equal(t, "second a", <-begun)
	acks, err := w.NC.SubscribeSync("$JS.ACK.>")
	require.NoError(t, err)
	require.NoError(t, w.NC.Flush())
	f.Unlock()
	require.NoError(t, nc.Flush()) // all that was on its way is here
	close(end)
	stop()
	require.NoError(t, w.NC.Flush())
	for n, _, _ := acks.Pending(); n > 0; n-- {
		m, err := acks.NextMsg(time.Second)
		require.NoError(t, err)
		require.False(t, strings.HasPrefix(string(m.Data), "-NAK"), "it takes the task from the second one")
	}
	require.Empty(t, begun)
	require.Equal(t, "second", w.Reaches("a", "open").Data.(*consumertest.Thing).Text)
}

// Where requests were not answered for so long, what comes is not begun, nor given back. A worker that has all that it may have under way asks for nothing.
func TestUnansweredForTooLong(t *testing.T) {
	t.Parallel()
	before := time.Now().Add(-20 * time.Second)
	p := &puller{k: &kind{ackWait: 30 * time.Second}, heard: before, asked: 1}
	require.NoError(t, p.look())
	require.Equal(t, before, p.heard)
	p.asked, p.missed = 0, true
	require.NoError(t, p.look())
	require.Equal(t, before, p.heard, "what was given up may be answered yet")
	p.missed = false
	require.NoError(t, p.look())
	require.NotEqual(t, before, p.heard)
	p.heard = time.Now().Add(-25 * time.Second)
	require.ErrorIs(t, p.look(), errHeld)
}

// A delivery that may have been given to another one stays so, whatever the server says later.
func TestADeliveryIsLostOnce(t *testing.T) {
	t.Parallel()
	d := &delivery{Msg: &nats.Msg{}, wait: 30 * time.Second, alive: time.Now().Add(-25 * time.Second)}
	require.ErrorIs(t, d.giveBack(0), errHeld)
	d.lives(time.Now())
	require.ErrorIs(t, d.giveBack(0), errHeld)
	d = &delivery{Msg: &nats.Msg{}, wait: 30 * time.Second, alive: time.Now().Add(-15 * time.Second)}
	d.lives(time.Now())
	require.ErrorIs(t, d.giveBack(0), nats.ErrMsgNotBound, "it is")
}
