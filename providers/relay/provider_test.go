package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/streams/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// database is what an engine of the tests relays: it publishes when it is told to.
type database struct {
	mu      sync.Mutex
	down    error // Open, Run and Status fail with it
	status  outbox.Status
	runs    int // engines that run now
	most    int // at a time
	opened  int
	removed bool
	broke   chan struct{} // closed: Run ends with down
	empty   chan struct{} // closed when everything is published
	drained chan struct{} // closed: Run ends
}

func newDatabase() *database {
	return &database{broke: make(chan struct{}), empty: make(chan struct{}), drained: make(chan struct{}), status: outbox.Status{Mode: outbox.Log, Shards: []outbox.Shard{{Number: 0, Owner: "n1", Position: "1"}}}}
}

func (d *database) open(context.Context) (relay.Engine, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened++
	return engine{d}, d.down
}

func (d *database) set(f func(*database)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *database) running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.runs
}

// fall ends all engines with an error until heal.
func (d *database) fall(err error) {
	d.set(func(d *database) { d.down = err; close(d.broke) })
}

func (d *database) heal() {
	d.set(func(d *database) { d.down = nil; d.broke = make(chan struct{}) })
}

type engine struct{ *database }

func (e engine) Run(ctx context.Context) error {
	e.mu.Lock()
	broke := e.broke
	e.runs++
	e.most = max(e.most, e.runs)
	e.mu.Unlock()
	defer e.set(func(d *database) { d.runs-- })
	select {
	case <-ctx.Done():
		return nil
	case <-e.drained:
		return relay.ErrDrained
	case <-broke:
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.down
	}
}

func (e engine) Drain(ctx context.Context) error {
	select {
	case <-e.empty:
		close(e.drained)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e engine) Status(context.Context) (outbox.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status, e.down
}

func (e engine) Remove(context.Context) error {
	e.set(func(d *database) { d.removed = true })
	return nil
}

func (e engine) Close() {}

var errForeign = errors.New("the database is another cluster")

// setup runs a provider of one source, orders, until the test ends.
func setup(t *testing.T) (*relay.Provider, *database) {
	d := newDatabase()
	p := relay.New(relay.Options{Namespace: "default", Node: "n1", Sources: []relay.Source{
		{Name: "orders", Mode: "log", Open: d.open, Fatal: func(err error) bool { return errors.Is(err, errForeign) }},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.Run(ctx) // never fails
	}()
	t.Cleanup(func() { cancel(); <-ended; require.Zero(t, d.running()) })
	return p, d
}

func perform(t *testing.T, p *relay.Provider, effect, source string, fence uint64) machines.Result {
	t.Helper()
	raw, err := json.Marshal(machine.Task{Source: source})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return p.Perform(ctx, machines.Task{Machine: "relay", Namespace: "default", ID: source, Effect: effect, Attempt: "a", Fence: fence, Data: raw})
}

func done(t *testing.T, p *relay.Provider, effect string, fence uint64) any {
	t.Helper()
	r := perform(t, p, effect, "orders", fence)
	require.Nil(t, r.Failure)
	return r.Data
}

func entity(state string, seen *machine.Observation) *machines.Entity {
	e := machine.Machine.New("default", "", "orders")
	e.State = state
	e.Data = &machine.Data{Seen: seen, SeenAt: time.Now()}
	return &e
}

func TestStartRunsOneEngineAndStopEndsIt(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	o := done(t, p, machine.EffectStart, 1).(machine.Observation)
	require.True(t, o.Active)
	require.Equal(t, "log", o.Mode)
	require.Equal(t, []machine.Shard{{Number: 0, Owner: "n1", Position: "1"}}, o.Shards)
	done(t, p, machine.EffectStart, 1)
	require.Equal(t, 1, d.running())
	done(t, p, machine.EffectStop, 2)
	require.Zero(t, d.running())
	done(t, p, machine.EffectStop, 2)
	done(t, p, machine.EffectStart, 3)
	require.Equal(t, 1, d.running())
	require.Equal(t, 1, d.most)
}

func TestAnOlderTaskIsRefused(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	done(t, p, machine.EffectStart, 5)
	r := perform(t, p, machine.EffectStop, "orders", 4)
	require.Equal(t, &machines.Failure{Code: string(providers.Fenced), Message: "fence 4 is older than 5", Retryable: true, Fence: 5}, r.Failure)
	p.Follow("orders", machine.Paused, 3)
	require.Never(t, func() bool { return d.running() == 0 }, 100*time.Millisecond, 10*time.Millisecond)
}

func TestAnUnknownSourceFailsForGood(t *testing.T) {
	t.Parallel()
	p, _ := setup(t)
	r := perform(t, p, machine.EffectStart, "invoices", 1)
	require.Equal(t, &machines.Failure{Code: "invalid", Message: `no source "invoices" is configured on this server: add it to outbox.sources`}, r.Failure)
	require.Nil(t, perform(t, p, machine.EffectStop, "invoices", 1).Failure, "what is not there does not run")
	r = perform(t, p, machine.EffectRemove, "invoices", 1)
	require.Equal(t, string(providers.Unavailable), r.Failure.Code, "what it has said is there")
	require.True(t, r.Failure.Retryable)
	_, err := p.Status(context.Background(), "invoices")
	require.Error(t, err)
	p.Follow("invoices", machine.Running, 1)
}

func TestTheEngineFollowsTheState(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	p.Follow("orders", machine.Running, 7)
	require.Eventually(t, func() bool { return d.running() == 1 }, 10*time.Second, 5*time.Millisecond)
	p.Follow("orders", machine.Paused, 8)
	require.Eventually(t, func() bool { return d.running() == 0 }, 10*time.Second, 5*time.Millisecond)
}

func TestADatabaseThatIsAwayIsToldAndTriedAgain(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	away := errors.New("connection refused")
	d.set(func(d *database) {
		d.down = fmt.Errorf("failed to connect to `user=relay database=orders`: %w (postgres://relay:s3cret@db/orders)", away)
	})
	r := perform(t, p, machine.EffectStart, "orders", 1)
	require.Equal(t, &machines.Failure{Code: "unavailable", Message: "cannot connect: connection refused (the database)", Retryable: true}, r.Failure)
	d.heal()
	done(t, p, machine.EffectStart, 1)

	keys := make(chan string, 16)
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { defer close(watched); _ = p.Watch(ctx, func(key string) { keys <- key }) }()
	defer func() { cancel(); <-watched }()
	require.Eventually(t, func() bool { return d.running() == 1 }, 10*time.Second, 5*time.Millisecond)
	d.fall(away)
	require.Eventually(t, func() bool {
		f, err := p.Look(context.Background(), entity(machine.Running, &machine.Observation{Active: true}), true)
		return err == nil && f.Input == machine.ReportObserved && f.Data.(machine.Observation).Problem == "connection refused"
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, "default.orders", <-keys)
	d.heal()
	require.Eventually(t, func() bool { return d.running() == 1 }, 10*time.Second, 5*time.Millisecond)
}

func TestWhatWaitingDoesNotMendIsFatal(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	d.set(func(d *database) { d.down = errForeign })
	r := perform(t, p, machine.EffectStart, "orders", 1)
	require.Equal(t, &machines.Failure{Code: "invalid", Message: errForeign.Error()}, r.Failure)
	f, err := p.Look(context.Background(), entity(machine.Running, &machine.Observation{}), true)
	require.NoError(t, err)
	require.True(t, f.Data.(machine.Observation).Fatal)
}

func TestASourceThatIsBeingMadeIsNoNews(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	d.set(func(d *database) { d.down = fmt.Errorf("the cluster starts: %w", relay.ErrNotYet) })
	p.Follow("orders", machine.Running, 1)
	f, err := p.Look(context.Background(), entity(machine.Running, &machine.Observation{Active: true}), true)
	require.NoError(t, err)
	require.Empty(t, f.Input)
	d.heal()
	require.Eventually(t, func() bool { return d.running() == 1 }, 10*time.Second, 5*time.Millisecond)
}

func TestDrainPublishesWhatIsThereAndStands(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	done(t, p, machine.EffectStart, 1)
	result := make(chan machines.Result, 1)
	go func() { result <- perform(t, p, machine.EffectDrain, "orders", 2) }()
	require.Never(t, func() bool { return d.running() == 0 }, 50*time.Millisecond, 10*time.Millisecond)
	close(d.empty)
	require.Nil(t, (<-result).Failure)
	require.Zero(t, d.running())
	p.Follow("orders", machine.Draining, 2) // the same, seen late
	done(t, p, machine.EffectDrain, 2)      // the same, delivered again
	require.Equal(t, 1, d.most)
	require.Zero(t, d.running())
	done(t, p, machine.EffectRemove, 3)
	require.True(t, d.removed)
}

func TestLookTellsOnlyWhatIsNew(t *testing.T) {
	t.Parallel()
	p, d := setup(t)
	seen := done(t, p, machine.EffectStart, 1).(machine.Observation)
	f, err := p.Look(context.Background(), entity(machine.Running, &seen), true)
	require.NoError(t, err)
	require.Empty(t, f.Input)

	d.set(func(d *database) { d.status.Lag, d.status.Oldest = 20_000, 3 })
	f, err = p.Look(context.Background(), entity(machine.Running, &seen), true)
	require.NoError(t, err)
	require.Equal(t, machine.ReportObserved, f.Input)

	// rows wait, and the position stays
	require.Eventually(t, func() bool {
		f, err = p.Look(context.Background(), entity(machine.Running, &seen), true)
		return err == nil && f.Data.(machine.Observation).Still > 0
	}, 10*time.Second, time.Millisecond)
	d.set(func(d *database) { d.status.Shards[0].Position = "2" })
	f, err = p.Look(context.Background(), entity(machine.Running, &seen), true)
	require.NoError(t, err)
	require.Zero(t, f.Data.(machine.Observation).Still)

	// all that waits, waits behind a failed row: nothing should move
	d.set(func(d *database) {
		d.status.Lag, d.status.Parked = 4, []outbox.Parked{{AggregateType: "order", AggregateID: "7", Waiting: 3}}
	})
	f, err = p.Look(context.Background(), entity(machine.Running, &seen), true)
	require.NoError(t, err)
	require.Zero(t, f.Data.(machine.Observation).Still)
	require.Len(t, f.Data.(machine.Observation).Parked, 1)
}
