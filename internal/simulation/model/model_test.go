package model

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// bubble runs a test with a clock of its own. nats.go keeps timers in a pool, and those of another bubble may not be used again, nor outside; two collections empty it. Such a test is not parallel.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	empty := func() {
		runtime.GC()
		runtime.GC()
	}
	empty()
	defer empty()
	synctest.Test(t, f)
}

// dial connects nats.go to a server.
func dial(t testing.TB, s *Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return nc, js
}

func TestTheClientLibraryTakesItForJetStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{})
		s.Auto(true)
		defer s.Close()
		nc, js := dial(t, s)
		ctx := t.Context()

		_, err := nc.Request("nobody", nil, time.Second)
		require.ErrorIs(t, err, nats.ErrNoResponders)

		st, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "Q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy})
		require.NoError(t, err)
		for range 3 {
			_, err = js.Publish(ctx, "q.a", []byte("x"))
			require.NoError(t, err)
		}
		cons, err := st.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "c", AckWait: time.Second})
		require.NoError(t, err)
		batch, err := cons.Fetch(5, jetstream.FetchMaxWait(time.Second))
		require.NoError(t, err)
		n := 0
		for m := range batch.Messages() {
			if n++; n > 1 {
				require.NoError(t, m.DoubleAck(ctx))
			}
		}
		require.Equal(t, 3, n)
		time.Sleep(2 * time.Second)
		m, err := cons.Next()
		require.NoError(t, err)
		meta, err := m.Metadata()
		require.NoError(t, err)
		require.EqualValues(t, 2, meta.NumDelivered)
		require.NoError(t, m.Ack())
		synctest.Wait()
		info, err := st.Info(ctx)
		require.NoError(t, err)
		require.Zero(t, info.State.Msgs)

		kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b"})
		require.NoError(t, err)
		rev, err := kv.Create(ctx, "k", []byte("1"))
		require.NoError(t, err)
		_, err = kv.Update(ctx, "k", []byte("2"), rev)
		require.NoError(t, err)
		_, err = kv.Update(ctx, "k", []byte("3"), rev)
		var api *jetstream.APIError
		require.True(t, errors.As(err, &api), "%v", err)
		w, err := kv.WatchAll(ctx)
		require.NoError(t, err)
		require.Equal(t, "2", string((<-w.Updates()).Value()))
		require.Nil(t, <-w.Updates())
		require.NoError(t, w.Stop())

		at := time.Now().Add(5 * time.Second)
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "T", Subjects: []string{"t.>"}, AllowMsgSchedules: true})
		require.NoError(t, err)
		_, err = js.PublishMsg(ctx, &nats.Msg{Subject: "t.s", Header: nats.Header{"Nats-Schedule": {"@at " + at.Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"t.due"}}})
		require.NoError(t, err)
		got, err := nc.SubscribeSync("t.due")
		require.NoError(t, err)
		time.Sleep(6 * time.Second)
		_ = got
		fired, err := js.Stream(ctx, "T")
		require.NoError(t, err)
		due, err := fired.GetLastMsgForSubject(ctx, "t.due")
		require.NoError(t, err)
		require.WithinDuration(t, at, due.Time, 300*time.Millisecond)
		_, err = fired.GetLastMsgForSubject(ctx, "t.s")
		require.ErrorIs(t, err, jetstream.ErrMsgNotFound)
		nc.Close()
		synctest.Wait()
	})
}

// Whoever drives the server decides when what happens.
func TestWhatIsNotProcessedHasNotHappened(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{})
		defer s.Close()
		nc, _ := dial(t, s)
		sub, err := nc.SubscribeSync("a")
		require.NoError(t, err)
		require.NoError(t, nc.Publish("a", []byte("1")))
		require.NoError(t, nc.Publish("a", []byte("2")))
		synctest.Wait()
		p := s.Pending()
		require.Len(t, p, 1)
		require.Equal(t, "1", string(p[0].Data))
		require.Equal(t, 1, p[0].Behind)
		s.Step(0)
		s.Step(0)
		require.Len(t, s.Outbound(), 1)
		s.Drop(s.Outbound()[0].Conn)
		s.Deliver(s.Outbound()[0].Conn)
		require.Empty(t, s.Outbound())
		m, err := sub.NextMsg(time.Second)
		require.NoError(t, err)
		require.Equal(t, "2", string(m.Data))
		nc.Close()
		synctest.Wait()
	})
}

// A stream with replicas that has lost its leader answers nothing, and goes on with the next one where it was.
func TestAnotherLeaderHasWhatWasStored(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{Replicas: 3})
		s.Auto(true)
		defer s.Close()
		nc, js := dial(t, s)
		ctx := t.Context()
		st, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "R", Subjects: []string{"r.>"}, Replicas: 3, Retention: jetstream.WorkQueuePolicy})
		require.NoError(t, err)
		elected, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*")
		require.NoError(t, err)
		first, err := js.Publish(ctx, "r.a", nil, jetstream.WithMsgID("1"), jetstream.WithExpectLastSequencePerSubject(0))
		require.NoError(t, err)
		s.LoseLeader("R")
		_, err = nc.Request("r.a", nil, time.Second)
		require.ErrorIs(t, err, nats.ErrTimeout)
		info, err := st.Info(ctx)
		require.NoError(t, err)
		require.Empty(t, info.Cluster.Leader)
		s.Elect("R")
		_, err = elected.NextMsg(time.Second)
		require.NoError(t, err)
		again, err := js.Publish(ctx, "r.a", nil, jetstream.WithMsgID("1"), jetstream.WithExpectLastSequencePerSubject(0))
		require.NoError(t, err)
		require.True(t, again.Duplicate) // with replicas, an id is looked at before what is expected
		require.Equal(t, first.Sequence, again.Sequence)
		nc.Close()
		synctest.Wait()
	})
}

// A schedule that comes due while its stream has no leader fires under the next one, and time goes on meanwhile.
func TestAScheduleWaitsForALeader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{Replicas: 3})
		s.Auto(true)
		nc, js := dial(t, s)
		ctx := t.Context()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "R", Subjects: []string{"r.>"}, Replicas: 3, AllowMsgSchedules: true})
		require.NoError(t, err)
		at := time.Now().Add(time.Second)
		_, err = js.PublishMsg(ctx, &nats.Msg{Subject: "r.timer", Header: nats.Header{"Nats-Schedule": {"@at " + at.Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {"r.due"}}})
		require.NoError(t, err)
		s.Auto(false)
		s.LoseLeader("R")
		s.Advance(at.Add(time.Second))
		_, more := s.NextTimer()
		require.False(t, more)
		s.Elect("R")
		s.Advance(at.Add(2 * time.Second))
		require.NotNil(t, s.Log("R").LastUnder("r.due"))
		s.Close()
		nc.Close()
		synctest.Wait()
	})
}

// A loss of power cuts off what was not synced, and brings back what was taken out since.
func TestALossOfPowerCutsEachStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{SyncEvery: 2 * time.Minute})
		s.Auto(true)
		defer s.Close()
		nc, js := dial(t, s)
		ctx := t.Context()
		st, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
		require.NoError(t, err)
		for range 2 {
			_, err = js.Publish(ctx, "s.a", nil)
			require.NoError(t, err)
		}
		s.Sync("S")
		for range 3 {
			_, err = js.Publish(ctx, "s.a", nil)
			require.NoError(t, err)
		}
		require.NoError(t, st.DeleteMsg(ctx, 1))
		require.NoError(t, st.DeleteMsg(ctx, 2))
		s.PowerLoss(func(_ string, synced, last uint64) uint64 {
			require.EqualValues(t, 2, synced)
			require.EqualValues(t, 5, last)
			return 3
		}, func(_ string, seq uint64) bool { return seq == 2 })
		nc.Close()
		_, js = dial(t, s)
		st, err = js.Stream(ctx, "S")
		require.NoError(t, err)
		state := st.CachedInfo().State
		require.EqualValues(t, 2, state.FirstSeq)
		require.EqualValues(t, 3, state.LastSeq)
		require.EqualValues(t, 2, state.Msgs)
		ack, err := js.Publish(ctx, "s.a", nil)
		require.NoError(t, err)
		require.EqualValues(t, 4, ack.Sequence)
		js.Conn().Close()
		synctest.Wait()
	})
}

// A stream that has lost everything goes on where its configuration lets it begin.
func TestALossOfPowerLeavesWhereAStreamBegins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{SyncEvery: 2 * time.Minute})
		s.Auto(true)
		defer s.Close()
		nc, js := dial(t, s)
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, FirstSeq: 1 << 40})
		require.NoError(t, err)
		_, err = js.Publish(t.Context(), "s.a", nil)
		require.NoError(t, err)
		s.PowerLoss(func(_ string, synced, _ uint64) uint64 { return synced }, func(string, uint64) bool { return false })
		nc.Close()
		_, js = dial(t, s)
		ack, err := js.Publish(t.Context(), "s.a", nil)
		require.NoError(t, err)
		require.EqualValues(t, 1<<40, ack.Sequence)
		js.Conn().Close()
		synctest.Wait()
	})
}

// A stream that is synced when it is told to keeps what it had when the sync began.
func TestAStreamIsSyncedWhenItIsTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := New(Options{Told: func(stream string) bool { return stream == "T" }})
		s.Auto(true)
		defer s.Close()
		nc, js := dial(t, s)
		ctx := t.Context()
		for _, name := range []string{"S", "T"} {
			st, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
			require.NoError(t, err)
			for range 2 {
				_, err = js.Publish(ctx, name+".a", nil)
				require.NoError(t, err)
			}
			require.NoError(t, st.DeleteMsg(ctx, 1))
		}
		mark, synced := s.Written("T")
		require.False(t, synced)
		_, synced = s.Written("S")
		require.True(t, synced)
		for _, name := range []string{"S", "T"} {
			_, err := js.Publish(ctx, name+".a", nil)
			require.NoError(t, err)
		}
		st, err := js.Stream(ctx, "T")
		require.NoError(t, err)
		require.NoError(t, st.DeleteMsg(ctx, 2))
		s.SyncTo("T", mark)
		_, synced = s.Written("T")
		require.False(t, synced)
		revived := []uint64{}
		s.PowerLoss(func(_ string, synced, _ uint64) uint64 { return synced }, func(_ string, seq uint64) bool { revived = append(revived, seq); return true })
		nc.Close()
		require.Equal(t, []uint64{2}, revived)
		require.EqualValues(t, 3, s.Log("S").Last)
		require.EqualValues(t, 2, s.Log("T").Last)
		require.EqualValues(t, 1, s.Log("T").N)
		synctest.Wait()
	})
}
