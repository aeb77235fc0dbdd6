package kv

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// faulty is a JetStream whose API answers some requests otherwise than the server.
func (n *node) faulty(t *testing.T, fault func(request string) (answer string)) jetstream.JetStream {
	sub, err := n.nc.Subscribe("FAULT.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "FAULT.")
		if answer := fault(request); answer != "" {
			_ = m.Respond([]byte(answer))
			return
		}
		_ = n.nc.PublishRequest("$JS.API."+request, m.Reply, m.Data)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	js, err := jetstream.NewWithAPIPrefix(n.nc, "FAULT")
	require.NoError(t, err)
	return js
}

const noMessage = `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`

// The server says "no message found" for whatever it cannot read, as after EIO.
func TestAnUnreadableValueIsNotAbsent(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	broken := true
	js := n.faulty(t, func(request string) string {
		if broken && strings.HasPrefix(request, "STREAM.MSG.GET.") {
			return noMessage
		}
		return ""
	})
	b, err := Open(t.Context(), js, "things", JSON[thing]())
	require.NoError(t, err)
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, ErrNotFound, "there is none")

	n.put(t, "things", "default.web", `{"state":"ready"}`)
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, streams.ErrUnreadable)
	require.NotErrorIs(t, err, ErrNotFound)

	broken = false
	e, err := b.Get(t.Context(), "default.web")
	require.NoError(t, err)
	require.Equal(t, "ready", e.Value.State)
	n.remove(t, "things", "default.web")
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, ErrNotFound, "it was deleted")
}

// A leader that does not answer has not said that there is none.
func TestSilenceIsNotAbsence(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	away, alone := false, false
	js := n.faulty(t, func(request string) string {
		switch {
		case strings.HasPrefix(request, "STREAM.MSG.GET."):
			return noMessage
		case alone && strings.HasPrefix(request, "STREAM.INFO."):
			return `{"cluster":{"name":"c","replicas":[{"name":"b"}]}}`
		case away && strings.HasPrefix(request, "STREAM.INFO."):
			return `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
		}
		return ""
	})
	b, err := Open(t.Context(), js, "things", JSON[thing]())
	require.NoError(t, err)
	away = true
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = b.Get(ctx, "default.web")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
	alone = true // a member without a leader speaks for itself
	_, err = b.Get(ctx, "default.web")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
}

// Of a stream without a leader any member answers, of what it has itself: what it lacks is not lost, and nothing is told anew.
func TestAMemberWithoutALeaderResetsNothing(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.bucket(t, "things")
	for _, key := range []string{"default.a", "default.b"} {
		n.put(t, "things", key, `{"state":"ready"}`)
	}
	s, err := n.js.Stream(t.Context(), "KV_things")
	require.NoError(t, err)
	created := s.CachedInfo().Created.Format(time.RFC3339Nano)
	var alone atomic.Bool
	asked := make(chan struct{}, 100)
	js := n.faulty(t, func(request string) string {
		if !alone.Load() || !strings.HasPrefix(request, "STREAM.INFO.") {
			return ""
		}
		asked <- struct{}{}
		return `{"created":"` + created + `","config":{"name":"KV_things"},"state":{"messages":1,"first_seq":1,"last_seq":1,"num_subjects":1},"cluster":{"name":"c","replicas":[{"name":"b"}]}}`
	})
	ix := NewIndex(js, "things", func(string, []byte) (Meta, error) { return Meta{}, nil }, Options{})
	var runs sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	runs.Go(func() { _ = ix.Run(ctx) })
	defer runs.Wait()
	defer cancel()
	<-ix.Ready()
	watch := ix.Subscribe(Filter{}, 16)
	defer watch.Close()
	alone.Store(true)
	for c := range s.ListConsumers(t.Context()).Info() { // they go with the member that had them
		require.NoError(t, s.DeleteConsumer(t.Context(), c.Name))
	}
	for range 2 {
		select {
		case <-asked:
		case <-time.After(30 * time.Second):
			require.Fail(t, "the index does not look")
		}
	}
	alone.Store(false)
	rev := n.put(t, "things", "default.a", `{"state":"gone"}`)
	c, ok := <-watch.C
	require.True(t, ok, "everything is told anew")
	require.Equal(t, rev, c.Item.Revision)
	require.EqualValues(t, 1, ix.Stats().Builds)
}
