package orchestrator

// Why a task waits is known by whoever schedules: answer takes questions of any node (Why), and the loop answers them (why) between two changes. What all tasks wait for it tells the metrics (stands).

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/task"
)

const (
	mostQuestions = 64 // that wait for an answer; more are not heard
	whyWithin     = 2 * time.Second
)

// ErrNobody says that no node schedules now, or that it did not answer in time.
var ErrNobody = errors.New("no node schedules tasks now; ask again in some seconds")

// Reason is why a task does not start now.
type Reason struct {
	State string `json:"state"`
	Why   string `json:"why,omitempty"` // empty unless it is queued
}

// Why asks the node that schedules why a task, <namespace>.<repository>.<task>, does not start.
func Why(ctx context.Context, d *consumers.Deps, key string) (Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, whyWithin)
	defer cancel()
	var r Reason
	m, err := d.NC.RequestWithContext(ctx, d.Names.Why(), []byte(key))
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
		return r, ErrNobody
	case err != nil:
		return r, err
	}
	return r, json.Unmarshal(m.Data, &r)
}

// answer has questions come to the loop until end.
func (l *loop) answer() (end func(), err error) {
	sub, err := l.NC.Subscribe(l.Names.Why(), func(m *nats.Msg) {
		select {
		case l.asked <- m:
		default: // it is asked again
		}
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = sub.Unsubscribe() }, nil // it is so when the connection is closed, too
}

func (l *loop) why(m *nats.Msg) { consumers.Respond(l.Log, m, l.reason(string(m.Data))) }

func (l *loop) reason(key string) Reason {
	item, ok := l.Tasks.Get(key)
	if !ok {
		return Reason{State: task.Deleted}
	}
	r := Reason{State: item.State}
	if item.State != task.Queued {
		return r
	}
	_, repo, _ := split(key)
	stored, _ := l.Repositories.Get(repo)
	switch s := l.ledger.slots[key]; {
	case s != nil:
		r.Why = "it has a slot, and is being started"
	case stored.Problem != "":
		r.Why = "its repository cannot be read"
	case l.repos[repo] == nil:
		r.Why = "its repository is not there; it is taken out of the queue when that is so for a minute"
	case !l.startable(repo):
		r.Why = "its repository is being deleted"
	case l.ledger.room() == 0 || len(l.ledger.slots) >= maxSlots:
		r.Why = "all slots that there can be are taken"
	default:
		r.Why = l.sched.Explain(key, l.clock())
	}
	return r
}

// pausedBy is by whom, and why: what follows after "is paused", for people.
func pausedBy(who, reason string) (text string) {
	if who != "" {
		text = " by " + who
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

// stands tells the metrics what there is.
func (l *loop) stands() {
	if l.Metrics == nil {
		return
	}
	var d *queue.Data
	if item, ok := l.Queues.Get(clusterEntry); ok && item.State != queue.Deleted {
		d, _ = item.Value.(*queue.Data)
	}
	s := l.sched.Stand(l.clock())
	l.Metrics.Stands(&s, min(limitsOf(clusterEntry, d).Held, maxSlots))
}
