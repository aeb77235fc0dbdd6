package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// services are the lines of a backup of many, each with events.
func services(t *testing.T, many, events, size int) []line {
	values := []line{begins(), {Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}}
	told := []line{of("EVENTS", KindMessages)}
	for i := range many {
		e := service.Machine.New("default", "", fmt.Sprint("s", i))
		e.State, e.Version, e.Data = service.Ready, uint64(events), json.RawMessage(`{}`) // a few
		key := fmt.Sprint("default.s", i)
		values = append(values, at("$KV.services."+key, &e))
		for v := range events {
			body, _ := json.Marshal(strings.Repeat("x", size))
			m := machines.Message{Kind: machines.KindEvent, Name: service.Machine.Events[0].Name, Version: uint64(v + 1), At: time.Now(), Body: body} // a few
			w, err := consumers.WriteOf(streams.Names{}, service.Machine, key, "", &m)
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
	require.Positive(t, done.Gone)
	require.EqualValues(t, done.Events-done.Gone, s.held(t, "EVENTS").Msgs)
	require.Contains(t, said.String(), "msg=restoring entities=60")
}

// Events whose life ends while others are restored are not told as ones that had no room.
func TestEventsWhoseLifeEndsDuringARestore(t *testing.T) {
	t.Parallel()
	s := installed(t)
	lines := services(t, 2, 3, 0)
	for _, l := range lines {
		if l.Message != nil && l.Message.Header != nil {
			l.Message.Header.Set("Nats-TTL", "2s")
		}
	}
	var text, rest []byte
	for _, l := range append(lines, of("DEAD_LETTERS", KindMessages)) {
		raw, err := json.Marshal(l)
		require.NoError(t, err)
		text = append(text, raw...)
	}
	rest, err := json.Marshal(line{End: &End{Messages: map[string]int{"KV_services": 2, "EVENTS": 6, "DEAD_LETTERS": 0}}})
	require.NoError(t, err)
	done, err := s.Restore(t.Context(), io.MultiReader(bytes.NewReader(compressed(t, string(text))), await(func() bool {
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			st, err := s.JS.Stream(t.Context(), "EVENTS")
			require.NoError(c, err)
			require.Zero(c, st.CachedInfo().State.Msgs)
			require.Greater(c, st.CachedInfo().State.LastSeq, uint64(6))
		}, 30*time.Second, 50*time.Millisecond)
		return true
	}), bytes.NewReader(compressed(t, string(rest)))))
	require.NoError(t, err)
	require.Equal(t, 6+2, done.Events, "with those of the restore")
	require.Zero(t, done.Gone)
}

// await is a place that has nothing, once something has come about.
type await func() bool

func (a await) Read([]byte) (int, error) {
	a()
	return 0, io.EOF
}

// A connection that is lost in the midst costs a restore nothing, and doubles nothing: whatever was under way, and although everything goes over it.
func TestRestoreOverALostConnection(t *testing.T) {
	t.Parallel()
	restore := func(t *testing.T, after int64) (carried int64) {
		s, srv := installedAt(t)
		cut := new(atomic.Int64)
		cut.Store(after)
		nc, err := nats.Connect("", nats.InProcessServer(wire{InProcessConnProvider: srv, cut: cut}), nats.ReconnectBufSize(-1), nats.ReconnectWait(300*time.Millisecond))
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		s.NC = nc
		s.JS, err = streams.JetStream(nc)
		require.NoError(t, err)
		s.Appender, err = publish.NewAppender(nc, publish.AppenderOptions{Timeout: time.Second})
		require.NoError(t, err)
		t.Cleanup(s.Appender.Close)
		lines := services(t, 100, 2, 500)
		for i := range lines {
			if lines[i].Section != nil {
				lines[i].Section.Consumers = []Consumer{{Config: jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy}}}
			}
		}
		done, err := s.Restore(t.Context(), file(t, lines...))
		require.NoError(t, err)
		carried = after - cut.Load()
		if after < math.MaxInt64 {
			require.GreaterOrEqual(t, carried, after)
		}
		require.Equal(t, 100, done.Entities)
		require.Zero(t, done.Consumers)
		require.EqualValues(t, 100, s.held(t, "KV_services").Msgs)
		require.EqualValues(t, 300, s.held(t, "EVENTS").Msgs)
		for _, stream := range []string{"EVENTS", "KV_services"} {
			_, err := s.JS.Consumer(t.Context(), stream, "reader")
			require.NoError(t, err)
		}
		return carried
	}
	all := restore(t, math.MaxInt64)
	for _, share := range []int64{250, 500, 750, 850, 900, 950, 990} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			t.Parallel()
			restore(t, all*share/1000)
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
	require.Contains(t, said.String(), "starts over")
}

// Durable consumers of others go on at the message where they were, and the program that owns one opens it with the configuration that it has always had.
func TestConsumersGoOnAndCanBeOpened(t *testing.T) {
	t.Parallel()
	from, to := installed(t), installed(t)
	_, err := from.Restore(t.Context(), file(t, services(t, 2, 3, 0)...))
	require.NoError(t, err)
	before := from.held(t, "EVENTS")
	began := time.Now().Add(-time.Hour)
	configs := map[string]jetstream.ConsumerConfig{
		"all":              {DeliverPolicy: jetstream.DeliverAllPolicy},
		"new":              {DeliverPolicy: jetstream.DeliverNewPolicy},
		"last":             {DeliverPolicy: jetstream.DeliverLastPolicy},
		"last-per-subject": {DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: "instar.evt.>"},
		"sequence":         {DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: before.FirstSeq + 1},
		"time":             {DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &began},
	}
	for stream, anew := range map[string]bool{"EVENTS": false, "KV_services": true} {
		for name, c := range configs {
			c.Durable, c.AckPolicy = name, jetstream.AckExplicitPolicy
			if c.FilterSubject != "" && anew {
				c.FilterSubject = "$KV.services.>"
			}
			_, err := from.JS.CreateConsumer(t.Context(), stream, c)
			require.NoError(t, err)
		}
	}
	m := services(t, 1, 5, 0)[7].Message // one more, which none of them has had
	_, err = from.JS.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
	require.NoError(t, err)
	done := map[string]int{"all": 3, "sequence": 2, "time": 1}
	for name, n := range done {
		c, err := from.JS.Consumer(t.Context(), "EVENTS", name)
		require.NoError(t, err)
		for range n {
			m, err := c.Next()
			require.NoError(t, err)
			require.NoError(t, m.DoubleAck(t.Context()))
		}
	}
	next := map[string]string{} // by consumer, what it has not had
	for name := range configs {
		c, err := from.JS.Consumer(t.Context(), "EVENTS", name)
		require.NoError(t, err)
		m, err := c.Next()
		require.NoError(t, err)
		next[name] = streams.Header(m.Headers(), streams.HeaderID)
	}
	var copied bytes.Buffer
	_, err = from.Write(t.Context(), &copied)
	require.NoError(t, err)
	restored, err := to.Restore(t.Context(), &copied)
	require.NoError(t, err)
	require.Zero(t, restored.Consumers)
	for stream, anew := range map[string]bool{"EVENTS": false, "KV_services": true} {
		for name, config := range configs {
			config.Durable, config.AckPolicy = name, jetstream.AckExplicitPolicy
			if config.FilterSubject != "" && anew {
				config.FilterSubject = "$KV.services.>"
			}
			c, err := to.JS.CreateOrUpdateConsumer(t.Context(), stream, config)
			require.NoError(t, err, "%s of %s", name, stream)
			m, err := c.Next(jetstream.FetchMaxWait(2 * time.Second))
			require.NoError(t, err, "%s of %s", name, stream)
			if anew {
				meta, err := m.Metadata()
				require.NoError(t, err)
				require.Equal(t, to.held(t, stream).FirstSeq, meta.Sequence.Stream, "%s of %s", name, stream)
				continue
			}
			for again := 0; slices.Contains(beginAtTheEnd, config.DeliverPolicy) && streams.Header(m.Headers(), streams.HeaderID) != next[name]; again++ { // what it begins with by itself
				require.Less(t, again, map[string]int{"new": 0, "last": 1, "last-per-subject": 8}[name])
				m, err = c.Next(jetstream.FetchMaxWait(2 * time.Second))
				require.NoError(t, err, "%s of %s", name, stream)
			}
			require.Equal(t, next[name], streams.Header(m.Headers(), streams.HeaderID), "%s of %s", name, stream)
		}
	}
}

// What is not of the plan is put into the account of another server only where that is configured, or is left out by its name.
func TestStreamsThatAreLeftOut(t *testing.T) {
	t.Parallel()
	from, to := installed(t), installed(t)
	_, err := from.Restore(t.Context(), file(t, services(t, 2, 1, 0)...))
	require.NoError(t, err)
	from.Others = []string{"THEIRS"}
	for range 3 {
		_, err = from.JS.Publish(t.Context(), "theirs.a", nil)
		require.NoError(t, err)
	}
	var copied bytes.Buffer
	_, err = from.Write(t.Context(), &copied)
	require.NoError(t, err)
	_, end, err := Check(bytes.NewReader(copied.Bytes()))
	require.NoError(t, err)
	stored := 0
	for _, c := range append(from.Plan.Configs(), jetstream.StreamConfig{Name: "THEIRS"}) {
		stored += int(from.held(t, c.Name).Msgs)
	}
	require.Equal(t, stored, end.Stored(), "messages, and no parts of a snapshot")
	_, err = to.Restore(t.Context(), bytes.NewReader(copied.Bytes()))
	require.ErrorContains(t, err, "leave it out by --without THEIRS")
	to.Without = []string{"THEIRS", "THEIR"}
	_, err = to.Restore(t.Context(), bytes.NewReader(copied.Bytes()))
	require.ErrorContains(t, err, "the backup has no stream THEIR to leave out: beside those of Instar it is of THEIRS")
	to.Without = []string{"THEIRS"}
	done, err := to.Restore(t.Context(), bytes.NewReader(copied.Bytes()))
	require.NoError(t, err)
	require.Equal(t, 2, done.Entities)
	require.Equal(t, 2, done.End.Entities["KV_services"])
	require.Zero(t, done.Gone)
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
