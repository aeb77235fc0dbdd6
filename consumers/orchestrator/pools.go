package orchestrator

// Workers elsewhere. A task of a pool is started only while somebody asks for tasks of the pool (package presence): the start of one that nobody takes would use up every limit until its
// timeout. pool remembers the pools that have tasks, workers looks at those whose tasks could start but for that.

import (
	"cmp"
	"time"

	"github.com/bcc94042/instar/consumers/orchestrator/presence"
	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
)

// nodesEntry limits the tasks of the nodes to those that they have room for: a start that waits until one has would use up its timeout.
const nodesEntry = "of the nodes"

// nodes takes how many tasks the nodes do now, at most once a second. It returns when to look again; zero is when something changes.
func (l *loop) nodes() (again time.Time) {
	if l.Room == nil {
		return again
	}
	if now := l.clock(); now.Sub(l.roomAt) >= presence.Every {
		l.roomAt = now
		room, known := l.Room()
		l.sched.SetEntry(nodesEntry, schedule.Limits{Held: room, Away: known && room == 0, Why: "no node does tasks now"}) // as when all are drained
	}
	if l.sched.Ready(nodesEntry) > 0 {
		again = l.roomAt.Add(presence.Every)
	}
	return again
}

// pool remembers a pool that has a task which waits.
func (l *loop) pool(pool string) {
	workers := l.names.workers(pool)
	if workers == "" || l.pools[workers] != "" {
		return
	}
	route := pool
	if cmp.Or(pool, task.NodesPool) == task.NodesPool {
		route = ""
	}
	l.pools[workers] = streams.WorkerName(task.Machine.Name, machines.Queue(task.EffectRun, route))
	l.sched.SetEntry(workers, schedule.Limits{Away: true}) // until it is known
}

// workers has nothing started for which no worker asks. It returns when to look again; zero is when something changes.
func (l *loop) workers() (again time.Time) {
	for workers, consumer := range l.pools {
		if l.sched.Ready(workers) > 0 {
			l.sched.SetEntry(workers, schedule.Limits{Away: !l.present.Asked(consumer)})
			again = l.clock().Add(presence.Every)
		}
	}
	return again
}

// idle ends looking at pools of which nothing could start. Before anything of them is started they are looked at again.
func (l *loop) idle() {
	for workers, consumer := range l.pools {
		if l.sched.Ready(workers) == 0 {
			l.present.Forget(consumer)
			l.sched.SetEntry(workers, schedule.Limits{Away: true})
		}
	}
}
