package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/powerloss"
)

// This version of the server can be told to sync in groups. Where another one cannot, and in a cluster, [Fsync] syncs each write.
func TestTheServerSyncsInGroups(t *testing.T) {
	t.Parallel()
	_, err := provenRelaxed()
	require.NoError(t, err)
	for profile, want := range map[Profile]bool{Fsync: true, Interval: false, OS: false} {
		require.Equal(t, want, (&Server{o: Options{Profile: profile}}).newFlusher() != nil, profile)
	}
	require.Nil(t, (&Server{o: Options{Profile: Fsync, Cluster: &ClusterOptions{}}}).newFlusher())
	require.Nil(t, (*Server)(nil).Syncer(), "of a server that is not embedded")
	require.Nil(t, (&Server{}).Syncer())
}

// sweepless is a server under Fsync whose streams nobody but the test syncs.
func sweepless(t *testing.T) (*running, func(string) error) {
	g := run(t, Options{Profile: Fsync})
	things(t, g.JS)
	g.Server.flusher.end()
	return g, func(stream string) error {
		done := make(chan error, 1)
		g.Server.Syncer()(stream, func(err error) { done <- err })
		return <-done
	}
}

// A stream that nobody has asked for is synced with each write, and one that somebody has when it is asked for, also after its configuration was changed and the server restarted.
func TestWhatIsAskedForIsSynced(t *testing.T) {
	t.Parallel()
	g, sync := sweepless(t)
	f := g.Server.flusher
	dirty := func(stream string) bool {
		s, err := f.find(stream)
		require.NoError(t, err)
		return f.where.dirty(s)
	}
	write := func(subject string) {
		_, err := g.JS.Publish(t.Context(), subject, []byte("x"))
		require.NoError(t, err)
	}
	again := func() {
		write("instar.evt.thing.a.x")
		require.False(t, dirty("EVENTS"), "the server syncs each write")
		require.NoError(t, sync("EVENTS"))
		write("instar.evt.thing.a.x")
		require.True(t, dirty("EVENTS"), "it waits to be told")
		require.NoError(t, sync("EVENTS"))
		require.False(t, dirty("EVENTS"))
		write("$KV.things.a")
		require.False(t, dirty("KV_things"), "which nobody has asked for")
	}
	again()

	s, err := g.JS.Stream(t.Context(), "EVENTS")
	require.NoError(t, err)
	write("instar.evt.thing.a.x")
	require.True(t, dirty("EVENTS"))
	config := s.CachedInfo().Config
	config.Description += " changed"
	_, err = g.JS.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, sync("EVENTS"))
	require.False(t, dirty("EVENTS"), "what came before the change is synced, too")

	write("instar.evt.thing.a.x")
	before := g.NC.Stats().Reconnects
	require.NoError(t, g.Server.Restart())
	require.Eventually(t, func() bool { return g.NC.Stats().Reconnects > before && g.NC.IsConnected() }, 20*time.Second, 5*time.Millisecond)
	again()

	_, err = g.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MEMORY", Subjects: []string{"memory"}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	require.NoError(t, sync("MEMORY"), "which has nothing to sync")
	require.ErrorIs(t, sync("NONE"), errNoStream)
	require.Eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.groups["NONE"] == nil }, 10*time.Second, time.Millisecond, "it is not looked at for ever")
}

// What others write to a stream that is no longer synced with each write is synced soon.
func TestWhatOthersWriteIsSynced(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Fsync})
	things(t, g.JS)
	synced := make(chan error, 1)
	g.Server.Syncer()("EVENTS", func(err error) { synced <- err })
	require.NoError(t, <-synced)
	_, err := g.JS.Publish(t.Context(), "instar.evt.thing.a.x", []byte("x"))
	require.NoError(t, err)
	s, err := g.Server.flusher.find("EVENTS")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !g.Server.flusher.where.dirty(s) }, 10*time.Second, time.Millisecond)
}

// A stream that nobody asks for any more is synced with each write again, and looked at no longer: until somebody asks.
func TestAStreamAtRestIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, sync := sweepless(t)
	f := g.Server.flusher
	write := func() {
		_, err := g.JS.Publish(t.Context(), "instar.evt.thing.a.x", []byte("x"))
		require.NoError(t, err)
	}
	relaxed := func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.groups) > 0 }
	require.NoError(t, sync("EVENTS"))
	require.Len(t, f.first, 1, "who looks is woken")
	<-f.first
	s, err := f.find("EVENTS")
	require.NoError(t, err)
	require.Eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return !f.groups["EVENTS"].busy }, 10*time.Second, time.Millisecond)
	require.True(t, f.sweep(time.Now()))
	require.True(t, f.where.relaxed(s))
	write()
	require.True(t, f.where.dirty(s))
	require.True(t, f.sweep(time.Now().Add(2*restAfter)))
	require.Eventually(t, func() bool { return !relaxed() }, 10*time.Second, time.Millisecond)
	require.False(t, f.where.relaxed(s))
	require.False(t, f.where.dirty(s), "what came before is synced, too")
	write()
	require.False(t, f.where.dirty(s), "with each write")
	require.False(t, f.sweep(time.Now()))
	require.Empty(t, f.first)

	require.NoError(t, sync("EVENTS"))
	require.Len(t, f.first, 1)
	require.True(t, f.where.relaxed(s))
}

func TestRoundsRestUntilTheyAreWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, woken, n := rounds{}, make(chan struct{}, 1), 0
		r.begin(time.Millisecond, woken, func() bool { n++; return n%3 != 0 })
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 3, n)
		woken <- struct{}{}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 6, n)
		r.end()
	})
}

// One store whose lock is held holds up the syncs of no other, and not the end of the looks.
func TestAHeldStoreHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Fsync})
	things(t, g.JS)
	f := g.Server.flusher
	for _, stream := range []string{"EVENTS", "COMMANDS"} {
		done := make(chan error, 1)
		f.sync(stream, func(err error) { done <- err })
		require.NoError(t, <-done)
	}
	held, err := f.find("EVENTS")
	require.NoError(t, err)
	mu := f.where.lock(held)
	mu.Lock()
	_, err = g.JS.Publish(t.Context(), "instar.in.3.thing.a.b.c", []byte("x"))
	require.NoError(t, err)
	s, err := f.find("COMMANDS")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !f.where.dirty(s) }, 10*time.Second, time.Millisecond)
	f.end()
	mu.Unlock()
}

// Who asks from outside gets what others have relaxed synced, and relaxes nothing.
func TestWhoAsksFromOutsideRelaxesNothing(t *testing.T) {
	t.Parallel()
	g, sync := sweepless(t)
	f := g.Server.flusher
	ask := func(stream string) error {
		done := make(chan error, 1)
		g.Server.SyncServer()(stream, func(err error) { done <- err })
		return <-done
	}
	require.NoError(t, ask("EVENTS"))
	s, err := f.find("EVENTS")
	require.NoError(t, err)
	require.False(t, f.where.relaxed(s))
	require.NoError(t, sync("EVENTS"))
	_, err = g.JS.Publish(t.Context(), "instar.evt.thing.a.x", []byte("x"))
	require.NoError(t, err)
	require.True(t, f.where.dirty(s))
	require.NoError(t, ask("EVENTS"))
	require.False(t, f.where.dirty(s))
	require.Nil(t, (*Server)(nil).SyncServer())
}

// Whoever asks while a sync is under way shares the next one.
func TestSyncsAreShared(t *testing.T) {
	t.Parallel()
	g, one := sweepless(t)
	require.NoError(t, one("EVENTS"))
	s, err := g.Server.flusher.find("EVENTS")
	require.NoError(t, err)
	mu := g.Server.flusher.where.lock(s) // no sync ends while it is held
	mu.Lock()
	var order []int
	var all sync.WaitGroup
	all.Add(100)
	for i := range 100 {
		g.Server.Syncer()("EVENTS", func(err error) {
			defer all.Done()
			require.NoError(t, err)
			order = append(order, i) // by one goroutine
		})
	}
	before := g.Server.flusher.syncs.Load()
	mu.Unlock()
	all.Wait()
	require.LessOrEqual(t, g.Server.flusher.syncs.Load()-before, uint64(2), "the one that was under way, and one for all others")
	require.Len(t, order, 100)
	require.IsIncreasing(t, order)
}

// Power losses under load, and some of them after the process was killed and has begun again: what was synced is there.
func TestAPowerLossCostsNothingThatWasSynced(t *testing.T) { // not parallel: the disk that the others use stalls for seconds
	for _, kind := range []powerloss.Kind{powerloss.Ext4, powerloss.XFS} {
		t.Run(string(kind), func(t *testing.T) {
			d, err := powerloss.New(t.TempDir(), kind, 320<<20)
			if errors.Is(err, powerloss.ErrCannot) {
				t.Skip(err)
			}
			require.NoError(t, err)
			t.Cleanup(func() { _ = d.Close() })
			total := 0
			for round := range *outages {
				total += outage(t, d, round)
			}
			t.Logf("%d power losses, %d writes that were synced", *outages, total)
		})
	}
}

var outages = flag.Int("outages", 2, "power losses in TestAPowerLossCostsNothingThatWasSynced")

// outage writes to three streams until the power goes, and requires that what was synced before is there afterwards. It returns how much that was.
func outage(t *testing.T, d *powerloss.Disk, round int) int {
	o := Options{Dir: filepath.Join(d.Path, "data"), Profile: Fsync, Log: slog.New(slog.DiscardHandler)}
	s, err := Start(o)
	require.NoError(t, err)
	nc, js := connected(t, s)
	things(t, js)

	const writers = 24
	subject := func(writer int) (stream, subject string) {
		switch name := fmt.Sprintf("w%d-%d", round, writer); writer % 3 {
		case 0:
			return "COMMANDS", "instar.in.3.thing.a." + name + ".c"
		case 1:
			return "KV_things", "$KV.things." + name
		default:
			return "EVENTS", "instar.evt.thing.a." + name
		}
	}
	write := func(writer int, n int64) error {
		stream, subject := subject(writer)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: fmt.Append(nil, n)}); err != nil {
			return err
		}
		done := make(chan error, 1)
		s.Syncer()(stream, func(err error) { done <- err })
		return <-done
	}
	var synced [writers]atomic.Int64 // the last number that is
	var cut atomic.Bool
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for n := int64(1); !cut.Load(); n++ {
				if write(w, n) != nil {
					return
				}
				if !cut.Load() { // a sync that ends when the power has gone is of a disk that is not there
					synced[w].Store(n)
				}
			}
		})
	}
	enough := func() bool {
		return synced[0].Load() > int64(3+round%17) && synced[1].Load() > 3 && synced[2].Load() > 3
	}
	require.Eventually(t, enough, time.Minute, time.Millisecond)
	if round%2 == 1 { // a process that is killed has not synced all, and the next one finds it
		cut.Store(true)
		all.Wait()
		s.flusher.end()
		for w := range writers {
			_, subject := subject(w)
			n := synced[w].Load() + 1
			_, err := js.PublishMsg(context.Background(), &nats.Msg{Subject: subject, Data: fmt.Append(nil, n)})
			require.NoError(t, err)
			synced[w].Store(n)
		}
		require.NoError(t, s.Restart())
	}
	var last [writers]int64
	for w := range writers {
		last[w] = synced[w].Load()
	}
	require.NoError(t, d.Cut())
	cut.Store(true)
	all.Wait()
	nc.Close()
	_ = s.Shutdown(context.Background()) // its disk is gone
	require.NoError(t, d.Back())

	s, err = Start(o)
	require.NoError(t, err)
	nc, js = connected(t, s)
	total := 0
	for w, want := range last {
		total += int(want)
		if want == 0 {
			continue
		}
		stream, subject := subject(w)
		st, err := js.Stream(t.Context(), stream)
		require.NoError(t, err)
		m, err := st.GetLastMsgForSubject(t.Context(), subject)
		require.NoError(t, err, "%s of round %d", subject, round)
		var n int64
		_, err = fmt.Sscan(string(m.Data), &n)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, want, "%s of round %d", subject, round)
	}
	nc.Close()
	require.NoError(t, s.Shutdown(context.Background()))
	return total
}

// What a process that was killed has written and not synced is synced before the next one reads it.
func TestWhatAProcessBeforeHasWrittenIsSynced(t *testing.T) { // not parallel: the disk that the others use stalls for seconds
	d, err := powerloss.New(t.TempDir(), powerloss.Ext4, 32<<20)
	if errors.Is(err, powerloss.ErrCannot) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	path := filepath.Join(d.Path, "streams", "EVENTS", "1.blk")
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	for name, begin := range map[string]func() error{
		"by itself": func() error { return syncFiles(d.Path) },
		"by the start of a server that cannot sync in groups": func() error {
			s := &Server{o: Options{Dir: t.TempDir(), Profile: Fsync}}
			require.NoError(t, os.Symlink(d.Path, filepath.Join(s.o.Dir, "nats")))
			err := s.start()
			if err == nil {
				t.Cleanup(func() { _ = s.stop() })
			}
			return err
		},
	} {
		require.NoError(t, os.WriteFile(path, []byte(name), 0o600))
		require.NoError(t, begin(), name)
		require.NoError(t, d.Cut())
		require.NoError(t, d.Back())
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, name, string(raw))
	}
	require.NoError(t, syncFiles(filepath.Join(d.Path, "nothing")), "of a first start")
}
