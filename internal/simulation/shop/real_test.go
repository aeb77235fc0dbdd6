package shop

// The schedules of seeds in the real world: relays and applications as in package relays, by the clock, against a Postgres and an embedded NATS server. What the models alone can do is left out of the schedules (real), and no seed repeats
// here: it says what is tried, and the clock when.

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/simulation/tables"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay/relaytest"
	"github.com/bcc94042/instar/streams/streamstest"
)

var (
	long  = flag.Int("long", 1, "how many times as many seeds")
	first = flag.Uint64("first", 1, "the first seed")
	aim   = flag.String("aim", "", "what goes wrong instead of what is drawn: kind, or kind@moment")
)

// killed is a cluster that some seeds kill, one at a time.
var killed struct {
	sync.Mutex
	postgres.Suite
}

func TestMain(m *testing.M) { relaytest.Main(killed.Around(m)) }

// real is what of a schedule there is in the real world. A server cannot be made to forget its leader, to have no room or a wrong clock, and a Postgres not to be an older one; a message to a client of NATS is not lost while its connection
// lives.
func real(o Options) Options {
	o.Haste, o.Replicas = 10, 1
	o.Faults = slices.DeleteFunc(o.Faults, func(f Fault) bool {
		return slices.Contains([]string{"drop", "elect", "full", "set-back", "step", "step-db"}, f.Kind)
	})
	for i := range o.Faults {
		o.Faults[i].For = o.short(min(o.Faults[i].For, 8*time.Second))
	}
	return o
}

// The first seeds whose schedules have a kind of fault that none before them has had in its mode. When a hundred have been looked at, or with an aim, all are taken in which something goes wrong.
func TestTheSameSchedulesAgainstPostgres(t *testing.T) {
	t.Parallel()
	had := map[string]int{}
	for seed, n := *first, 0; n < 8**long; seed++ {
		o := real(Draw(seed).Aimed(*aim))
		if *aim != "" && len(o.Faults) == 0 {
			t.Fatalf("-aim %s: there is no such fault in the real world", *aim)
		}
		if !slices.ContainsFunc(o.Faults, func(f Fault) bool { return *aim != "" || seed-*first >= 100 || had[string(o.Mode)+f.Kind] < *long }) {
			continue
		}
		for _, f := range o.Faults {
			had[string(o.Mode)+f.Kind]++
		}
		n++
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			suite := &relaytest.Postgres
			if slices.ContainsFunc(o.Faults, func(f Fault) bool { return f.Kind == "crash-db" }) {
				killed.Lock()
				defer killed.Unlock()
				suite = &killed.Suite
			}
			open(t, o, suite).run()
		})
	}
}

// world is one run.
type world struct {
	t       *testing.T
	o       Options
	cluster *postgres.Cluster
	server  *embedded.Server
	dsn     string
	look    *pgxpool.Pool // what the tables are looked at through
	js      jetstream.JetStream
	stream  jetstream.Stream // nil until a relay has made it
	judge   Judge
	over    atomic.Bool
	under   sync.WaitGroup // what faults have begun
	notes   notes

	mu       sync.Mutex
	steps    int // what has passed on connections
	struck   []bool
	passed   []int
	calm     bool
	wrong    map[string]int
	cuts     int
	wires    []*wire
	places   []*process // what runs there, or has
	busy     map[string]bool
	position uint64
}

func open(t *testing.T, o Options, suite *postgres.Suite) *world {
	t.Helper()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	w := &world{t: t, o: o, cluster: suite.Cluster(t), server: env.Server, js: env.JS, struck: make([]bool, len(o.Faults)), passed: make([]int, len(o.Faults)), wrong: map[string]int{}, busy: map[string]bool{}}
	require.NoError(t, Prepare(t.Context(), env.NC, o))
	w.dsn = suite.Copy(t, fmt.Sprint(o.Mode, o.Shards), func(dsn string) error {
		return outbox.Init(t.Context(), dsn, "", outbox.Settings{Mode: o.Mode, Shards: o.Shards})
	})
	var err error
	w.look, err = pgxpool.New(t.Context(), w.dsn)
	require.NoError(t, err)
	t.Cleanup(w.look.Close)
	w.notes.to = t.Output()
	w.judge = Judge{Options: o, Tables: w, Fail: func(format string, args ...any) { t.Errorf("I13: "+format, args...) }}
	return w
}

func (w *world) run() {
	defer w.end()
	for i := range w.o.Relays {
		p := w.boot(fmt.Sprint("relay-", i))
		w.mu.Lock() // faults of the ones before it look for relays
		w.places = append(w.places, p)
		w.mu.Unlock()
	}
	for i := range w.o.Apps {
		w.judge.Apps = append(w.judge.Apps, w.reach(fmt.Sprint("app-", i)).Start(i))
	}
	var operated <-chan struct{}
	if w.o.Operator {
		operated = w.reach("operator").Operate(w.judge.Apps)
	}
	w.until("the applications are done", func() bool { return w.done(operated) })
	applied := time.Now()
	w.until("what was to go wrong has", func() bool { return w.allStruck() || time.Since(applied) > time.Second })
	w.soothe()
	w.judge.Cuts = w.cutOff()
	w.until("everything has come to rest", func() bool { return w.judge.Unrest(false) == "" })
	rested := time.Now()
	w.until("nothing comes late", func() bool { return time.Since(rested) > 300*time.Millisecond })
	w.judge.Check()
	stop := make(chan struct{})
	settled := w.reach("operator").Settle(stop)
	defer func() { close(stop); <-settled }()
	w.until("nothing waits after the operator", func() bool { return w.judge.Unrest(true) == "" })
	w.judge.Check()
	w.t.Logf("%d events; what went wrong: %v", w.judge.Seen(), w.wrong)
}

func (w *world) done(operated <-chan struct{}) bool {
	all := []<-chan struct{}{operated}
	for _, a := range w.judge.Apps {
		all = append(all, a.Done())
	}
	return !slices.ContainsFunc(all, func(done <-chan struct{}) bool {
		select {
		case <-done:
			return false
		default:
			return done != nil
		}
	})
}

func (w *world) allStruck() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.o.Faults {
		if !w.struck[i] && f.At == "" && f.Step > w.steps {
			return false
		}
	}
	return true
}

func (w *world) cutOff() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}

// until lets faults strike and relays start, until something holds. On a busy machine that may take long, as long as events get through.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	seen, end := w.judge.Seen(), time.Now().Add(relaytest.Within)
	for ; ; <-time.After(2 * relaytest.Every) {
		w.observe()
		w.mishap()
		w.revive()
		if now := w.judge.Seen(); now > seen {
			seen, end = now, time.Now().Add(relaytest.Within)
		}
		switch {
		case w.t.Failed():
			w.t.FailNow()
		case holds():
			return
		case time.Now().After(end):
			w.t.Fatalf("I12: %s: nothing was stored for %s; %s", what, relaytest.Within, w.judge.Unrest(false))
		}
	}
}

// reach is how an application, or an operator, reaches the database.
func (w *world) reach(name string) Database {
	return Database{
		Options: w.o, DSN: w.dsn, Now: time.Now, Over: &w.over, Note: func(format string, args ...any) { fmt.Fprintf(&w.notes, name+": "+format+"\n", args...) },
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return w.dial(ctx, network, addr, nil)
		},
	}
}

func (w *world) dial(ctx context.Context, network, addr string, p *process) (net.Conn, error) {
	if p != nil && w.isDead(p) {
		return nil, errCut
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return w.wire(c, p, &ear{prepared: map[string]string{}}), nil
}

// observe tells the judge of what was stored. While the server restarts there is nothing to see.
func (w *world) observe() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if w.stream == nil {
		w.stream, err = w.js.Stream(ctx, Stream)
	}
	for err == nil {
		var m *jetstream.RawStreamMsg
		if m, err = w.stream.GetMsg(ctx, w.position+1, jetstream.WithGetMsgSubject("outbox.>")); err == nil {
			w.position = m.Sequence
			id, _ := uuid.Parse(m.Header.Get("ce-id"))
			w.judge.Stored(id, m.Sequence, m.Time)
		}
	}
}

// Rows are those of the tables. While the database is away there is nothing to see, so it is asked until it answers.
func (w *world) Rows() (all []tables.Row) {
	for end := time.Now().Add(relaytest.Within); ; <-time.After(relaytest.Every) {
		rows, err := w.look.Query(w.t.Context(), sqlRows)
		if err == nil {
			all, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (t tables.Row, err error) {
				err = r.Scan(&t.Seq, &t.ID, &t.Aggregate, &t.State, &t.Attempts)
				if f, ok := w.judge.fate(t.ID); ok {
					t.Appended, t.Committed = uint64(f.Began.UnixNano()), uint64(f.Ended.UnixNano())
				}
				return t, err
			})
		}
		if err == nil || time.Now().After(end) {
			require.NoError(w.t, err)
			return all
		}
	}
}

const sqlRows = `
	select l.seq, l.event_id, l.aggregate_type || '/' || l.aggregate_id, coalesce(p.state, ''), coalesce(p.attempts, 0)
	from outbox_log l left join outbox_parked p on p.shard = l.shard and p.seq = l.seq and p.event_id = l.event_id
	where not exists (select from outbox_late d where d.shard = l.shard and d.seq = l.seq and d.event_id = l.event_id and d.marker is null)
	union all select seq, event_id, aggregate_type || '/' || aggregate_id, status, attempts from outbox_event order by 1`

// Durable is not known of a real database before it is killed: then the judge misses the row.
func (w *world) Durable(uuid.UUID) bool { return true }

// Lost says that no commit was undone which is there again under another number: who gets an answer does not append again.
func (w *world) Lost(uuid.UUID) bool { return false }

// end lets everything end.
func (w *world) end() {
	w.over.Store(true)
	w.soothe()
	for _, p := range w.places {
		w.crash(p, 0)
	}
	for _, x := range w.wiresOf(nil) {
		x.end(0)
	}
	for _, p := range w.places {
		<-p.done
	}
	for _, a := range w.judge.Apps {
		<-a.Done()
	}
	w.under.Wait()
	w.notes.end()
}

// notes are what is said in a run. Libraries may say something when it has ended; nobody reads that.
type notes struct {
	mu sync.Mutex
	to io.Writer
}

// Write writes to the log of the test.
func (n *notes) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.to.Write(b)
}

func (n *notes) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = io.Discard
}
