package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
)

// services are the lines of a backup of many, each with events.
func services(t *testing.T, many, events, size int) []line {
	values := []line{begins(), {Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}}
	told := []line{of("EVENTS", KindMessages)}
	for i := range many {
		e := service.Machine.New("default", "", fmt.Sprint("s", i))
		e.State, e.Version, e.Data = service.Ready, uint64(events), json.RawMessage(`{}`) //nolint:gosec // a few
		key := fmt.Sprint("default.s", i)
		values = append(values, at("$KV.services."+key, &e))
		for v := range events {
			body, _ := json.Marshal(strings.Repeat("x", size))
			m := machines.Message{Kind: machines.KindEvent, Name: service.Machine.Events[0].Name, Version: uint64(v + 1), At: time.Now(), Body: body} //nolint:gosec // a few
			w, err := consumers.Published(streams.Names{}, service.Machine, key, "", &m)
			require.NoError(t, err)
			told = append(told, line{Message: &Message{Subject: w.Msg.Subject, Seq: 1, Time: time.Now(), Header: w.Msg.Header, Data: w.Msg.Data}})
		}
	}
	return append(values, told...)
}

func (s *Store) held(t *testing.T, stream string) jetstream.StreamState {
	st, err := s.JS.Stream(t.Context(), stream)
	require.NoError(t, err)
	return st.CachedInfo().State
}

// What a bound of the events removes while they are restored is looked up, and followed.
func TestRestoreBelowABoundOfTheEvents(t *testing.T) {
	t.Parallel()
	s, said := installed(t), new(bytes.Buffer)
	s.Plan.Events, s.every, s.Log = 64<<10, 1, slog.New(slog.NewTextHandler(said, nil))
	done, err := s.Restore(t.Context(), file(t, services(t, 60, 3, 1000)...))
	require.NoError(t, err)
	require.Equal(t, 60, done.Entities)
	require.Equal(t, 60*3+60, done.Events)
	require.EqualValues(t, 60, s.held(t, "KV_services").Msgs)
	require.Less(t, s.held(t, "EVENTS").Msgs, uint64(done.Events)) //nolint:gosec // it counts
	require.Contains(t, said.String(), "msg=restoring entities=60")
}

// A connection that is lost in the midst costs a restore nothing, and doubles nothing.
func TestRestoreOverALostConnection(t *testing.T) {
	t.Parallel()
	for _, after := range []int64{30 << 10, 120 << 10} { // among the values, and among the events
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			s, srv := installedAt(t)
			cut := new(atomic.Int64)
			cut.Store(after)
			nc, err := nats.Connect("", nats.InProcessServer(wire{InProcessConnProvider: srv, cut: cut}), nats.ReconnectBufSize(-1), nats.ReconnectWait(10*time.Millisecond))
			require.NoError(t, err)
			t.Cleanup(nc.Close)
			s.Appender, err = streams.NewAppender(nc, streams.AppenderOptions{Timeout: time.Second})
			require.NoError(t, err)
			t.Cleanup(s.Appender.Close)
			done, err := s.Restore(t.Context(), file(t, services(t, 100, 2, 500)...))
			require.NoError(t, err)
			require.EqualValues(t, 1, nc.Stats().Reconnects)
			require.Equal(t, 100, done.Entities)
			require.EqualValues(t, 100, s.held(t, "KV_services").Msgs)
			require.EqualValues(t, 300, s.held(t, "EVENTS").Msgs)
		})
	}
}

// A durable consumer of others on a bucket begins anew: all values are new ones.
func TestConsumersOfBuckets(t *testing.T) {
	t.Parallel()
	from, to := installed(t), installed(t)
	_, err := from.Restore(t.Context(), file(t, services(t, 2, 0, 0)...))
	require.NoError(t, err)
	c, err := from.JS.CreateConsumer(t.Context(), "KV_services", jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "$KV.services.default.s0"})
	require.NoError(t, err)
	m, err := c.Next()
	require.NoError(t, err)
	require.NoError(t, m.DoubleAck(t.Context()))
	var copied bytes.Buffer
	_, err = from.Write(t.Context(), &copied)
	require.NoError(t, err)
	said, before := new(bytes.Buffer), bound(time.Now())
	to.Log = slog.New(slog.NewTextHandler(said, nil))
	_, err = to.Restore(context.Background(), &copied)
	require.NoError(t, err)
	c, err = to.JS.Consumer(t.Context(), "KV_services", "reader")
	require.NoError(t, err)
	m, err = c.Next()
	require.NoError(t, err)
	require.Equal(t, "$KV.services.default.s0", m.Subject())
	e, err := service.Machine.DecodeAt("default.s0", m.Data())
	require.NoError(t, err)
	require.Greater(t, e.Version, before)
	meta, err := m.Metadata()
	require.NoError(t, err)
	require.Greater(t, meta.Sequence.Stream, before)
	require.Contains(t, said.String(), "begins anew")
}

// Whatever is restored, and however soon after another restore, begins above all that anybody has seen.
func TestNumbersAreFresh(t *testing.T) {
	t.Parallel()
	at := func(minutes int) time.Time { return epoch.Add(365*24*time.Hour + time.Duration(minutes)*time.Minute) }
	const busy = 60 * perSecond * 9 / 10 // in a minute
	first := fresh{at(-10), at(0)}.above(5000)
	newest := fresh{at(1), at(2)}.above(first + busy) // a backup of what was restored a minute ago
	require.Greater(t, newest, first+2*busy)
	oldest := fresh{at(-10), at(4)}.above(5000)
	require.Greater(t, oldest, newest+2*busy, "the older backup, after the newer one")
	require.Greater(t, fresh{at(-10), at(5)}.above(4000), oldest+busy)

	hour := uint64(3600 * perSecond)
	require.Equal(t, bound(at(0))+hour/60+hour+1, fresh{at(0), at(1)}.above(bound(at(0))+1), "the clock of the server was ahead by more than the hour")
	require.Equal(t, bound(at(60))+hour, fresh{at(60), at(0)}.above(bound(at(60))), "and this one is behind")
	require.Equal(t, bound(at(0)), fresh{at(60), at(0)}.above(5))
	require.Equal(t, 7+hour, fresh{epoch.AddDate(-3, 0, 0), epoch.AddDate(-3, 0, 0)}.above(7), "a clock that stands")
	require.Less(t, fresh{at(0), epoch.AddDate(200, 0, 0)}.above(5), uint64(1)<<53)
}
