package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// alone is a task of the pool greeters that waits in its queue, and no server around it: what a worker asks, and what it reports, comes to the test.
type alone struct {
	*streamstest.Env
	ackWait time.Duration
	seconds int   // that the task takes
	silent  int64 // the first so many questions whether it still waits are refused
	lost    int   // the first so many reports are not stored

	queue jetstream.Consumer
	asked atomic.Int64
	began time.Time     // when it was asked first
	kept  atomic.Uint64 // of the queue, at the first question that was not refused

	mu       sync.Mutex
	reports  []string // their names
	last     string
	reported time.Time
}

func (a *alone) start(t *testing.T) *alone {
	t.Helper()
	a.Env = streamstest.Start(t, embedded.Options{Profile: embedded.OS, Listen: "127.0.0.1:0", Open: true})
	effects, err := a.JS.CreateStream(a.Ctx, jetstream.StreamConfig{Name: "EFFECTS", Subjects: []string{"instar.fx.>"}, Retention: jetstream.WorkQueuePolicy})
	require.NoError(t, err)
	a.queue, err = effects.CreateConsumer(a.Ctx, jetstream.ConsumerConfig{Durable: "fx-task-run=greeters", AckPolicy: jetstream.AckExplicitPolicy, AckWait: a.ackWait})
	require.NoError(t, err)
	for subject, heard := range map[string]nats.MsgHandler{"instar.api.get.task.default.a.one": a.question, "instar.cmd.task.default.a.one.*": a.report} {
		_, err = a.NC.Subscribe(subject, heard)
		require.NoError(t, err)
	}
	require.NoError(t, a.NC.Flush())
	a.kept.Store(1)
	_, err = a.JS.Publish(a.Ctx, "instar.fx.task.run.default.a.one", fmt.Appendf(nil, `{"machine":"task","namespace":"default","parent":"a","id":"one","effect":"run","attempt":"x","try":1,"data":{"type":"greet","params":{"name":"you","seconds":%d}}}`, a.seconds))
	require.NoError(t, err)
	return a
}

// question is answered as the server does.
func (a *alone) question(m *nats.Msg) {
	n := a.asked.Add(1)
	if n == 1 {
		a.mu.Lock()
		a.began = time.Now()
		a.mu.Unlock()
	}
	if n <= a.silent {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"try again"}}, Data: []byte(`{"status":503}`)})
		return
	}
	a.mu.Lock()
	done := len(a.reports) > 0 // a worker that looks while it works may ask when it is through
	a.mu.Unlock()
	if n == a.silent+1 && !done {
		a.kept.Store(a.left())
	}
	_ = m.Respond([]byte(`{"machine":"task","state":"running","effects":{"run":{"id":"x"}}}`))
}

// report is answered as the stream of commands does.
func (a *alone) report(m *nats.Msg) {
	a.mu.Lock()
	a.reports, a.last, a.reported = append(a.reports, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]), string(m.Data), time.Now()
	n := len(a.reports)
	a.mu.Unlock()
	if n <= a.lost {
		_ = m.Respond([]byte(`{"error":{"code":503,"err_code":10077,"description":"no room"}}`))
		return
	}
	_ = m.Respond(fmt.Appendf(nil, `{"stream":"COMMANDS","seq":%d}`, n))
}

// left is how many tasks the queue has; where nobody says so, more than there are.
func (a *alone) left() uint64 {
	s, err := a.JS.Stream(a.Ctx, "EFFECTS")
	if err != nil {
		return 99
	}
	return s.CachedInfo().State.Msgs
}

// ends waits until the task is acknowledged, and returns what was reported of it.
func (a *alone) ends() []string {
	a.T.Helper()
	require.Eventually(a.T, func() bool { return a.left() == 0 }, 3*time.Minute, 20*time.Millisecond, "it is acknowledged")
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Contains(a.T, a.last, "hello you")
	return slices.Clone(a.reports)
}

// A worker that nobody tells whether its task is still wanted leaves it for its next delivery: acknowledged, it would stand as running until its time is over.
func TestAWorkerThatCannotAskLeavesItsTask(t *testing.T) {
	t.Parallel()
	for name, program := range exampleWorkers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := (&alone{ackWait: 5 * time.Second, silent: 1}).start(t)
			runs(t, program(t, a.Server.ClientURL()))
			require.Equal(t, []string{"done"}, a.ends())
			require.EqualValues(t, 1, a.kept.Load(), "it was there when it was asked for again")
		})
	}
}

// Work that is done has not failed because its result cannot be stored: as while NATS restarts.
func TestAResultThatIsNotStoredIsReportedAgain(t *testing.T) {
	t.Parallel()
	for name, program := range exampleWorkers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := (&alone{ackWait: 5 * time.Second, lost: 1}).start(t)
			runs(t, program(t, a.Server.ClientURL()))
			require.Equal(t, []string{"done", "done"}, a.ends())
		})
	}
}

// A worker says that it is at work for as long as that takes: nobody else is given its task.
func TestAWorkerKeepsItsTask(t *testing.T) {
	t.Parallel()
	const ackWait = 15 * time.Second // of which a slow machine may take the most
	for name, program := range exampleWorkers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := (&alone{ackWait: ackWait, seconds: 20}).start(t)
			runs(t, program(t, a.Server.ClientURL()))
			require.Eventually(t, func() bool { return a.asked.Load() > 0 }, time.Minute, 20*time.Millisecond, "it has taken the task")
			got, err := a.queue.Next(jetstream.FetchMaxWait(ackWait + 2*time.Second))
			require.ErrorIs(t, err, nats.ErrTimeout, "another one gets %v", got)
			require.Equal(t, []string{"done"}, a.ends())
			require.Greater(t, a.reported.Sub(a.began), ackWait, "that was longer than it may be silent")
			info, err := a.queue.Info(a.Ctx)
			require.NoError(t, err)
			require.EqualValues(t, 1, info.Delivered.Consumer, "it was delivered once")
		})
	}
}
