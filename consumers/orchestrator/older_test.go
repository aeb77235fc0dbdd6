package orchestrator

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A node of before knows no cloneAsked, and derives ready where a clone is asked for: it is told the counts all the same, and each of them few times.
func TestANodeOfBeforeIsToldTheCounts(t *testing.T) {
	t.Parallel()
	w := &world{World: consumertest.New(t, embedded.Interval, task.Machine, repository.Machine)}
	stored := repository.Data{Spec: repository.Spec{URL: "/srv/a"}, Clone: true, Applied: 1}
	version, applied, unchanged, refused, upgraded := uint64(1), 0, 0, 0, false
	sub, err := w.NC.Subscribe(w.Names.Command(repository.Machine.Name, "default.a", repository.ReportObserved), func(m *nats.Msg) {
		var r machines.Report
		var known struct {
			repository.Counts
			Applied uint64 `json:"applied,omitempty"`
		}
		if json.Unmarshal(m.Data, &r) != nil {
			return
		}
		a := machines.Answer{Outcome: machines.Applied, State: repository.Ready}
		strict := json.NewDecoder(bytes.NewReader(r.Data))
		strict.DisallowUnknownFields()
		err := strict.Decode(&known)
		switch {
		case err != nil && upgraded:
			stored.Clone = false
			applied++
			version++
		case err != nil:
			refused++
			a = machines.Answer{Outcome: machines.Refused, Refusal: machines.Invalid(machines.FieldError{Field: "cloneAsked", Message: "unknown field"})}
		case stored.Tasks != nil && *stored.Tasks == known.Counts:
			unchanged++
			a.Outcome = machines.Unchanged
		default:
			applied++
			version++
			stored.Tasks = &known.Counts
		}
		a.Version = version
		raw, _ := json.Marshal(a)
		_ = w.NC.Publish(m.Header.Get(streams.HeaderReply), raw)
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	require.NoError(t, w.NC.Flush())
	done := make(chan struct{})
	w.follows(w.Apart("one"), func(ctx context.Context, o *Orchestrator) {
		defer close(done)
		now := time.Now()
		o.clock = func() time.Time { return now }
		o.Deps = o.WithDefaults()
		l := o.begin(ctx)
		l.ledger = &ledger{slots: map[string]*slot{}}
		sees := func() {
			d := stored
			l.repository(index.Item{Key: "default.a", State: repository.Ready, Version: version, Generation: 2, Value: &d}, false)
		}
		passes := func(most time.Duration) {
			for end := now.Add(most); now.Before(end); now = now.Add(statesEvery) {
				l.look("default.a", now)
				if r := l.repos["default.a"]; r.asking {
					l.answered(<-l.answers)
					sees()
				}
			}
		}
		sees()
		l.repos["default.a"].cloned, l.repos["default.a"].makes.not = 2, now.Add(time.Hour) // an analysis cannot be made
		l.task(index.Item{Key: "default.a.one", State: task.Pending, Version: 1, Value: &task.Brief{Type: "noop"}}, false)
		passes(20 * time.Second)
		require.Equal(t, [3]int{1, 1, 1}, [3]int{refused, applied, unchanged})
		l.task(index.Item{Key: "default.a.one", State: task.Failed, Version: 2, Value: &task.Brief{Type: "noop"}}, false)
		passes(20 * time.Second)
		require.Equal(t, [3]int{1, 2, 2}, [3]int{refused, applied, unchanged}, "other counts")
		require.Equal(t, 1, stored.Tasks.Failed)
		upgraded = true
		passes(askMost)
		require.False(t, stored.Clone, "it is said again later")
	})
	<-done
}
