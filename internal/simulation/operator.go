package simulation

// What the operator is asked for (package operator), drawn as faults are.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/simulation/operator"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/streams"
)

// acts are what the operator may be asked for.
var acts = map[string]func(w *World, f Fault){
	"cordon":      keepNode(cluster.NodeCordoned),
	"drain":       keepNode(cluster.NodeDraining),
	"pause":       pauseConsumer,
	"redrive":     func(w *World, _ Fault) { w.operator.Redrive() },
	"drop-values": dropEnded,
	"purge":       purge,
	"restore":     restore,
}

func (w *World) startOperator() {
	w.operator = operator.New(operator.Options{
		Connect: w.dialing(nil, "operator", nil), Sync: w.disk.Syncer(), Over: func() bool { return w.over },
		Note: func(format string, args ...any) { w.trace.Note("operator", format, args...) },
	})
	go func() {
		pinned.Use(nil)
		if err := w.operator.Run(); err != nil {
			w.fail("operator", "%v", err)
		}
	}()
}

// later does something when a time is over, or when nothing goes wrong any more.
func (w *World) later(d time.Duration, do func()) {
	w.laters = append(w.laters, later{time.Now().Add(d), do})
}

type later struct {
	at time.Time
	do func()
}

// want makes a node be what the operator wants, by way of any that runs.
func (w *World) want(name string, state cluster.NodeState) {
	w.wanted[name] = state
	w.operator.Ask(fmt.Sprintf("%s is to be %s", name, state), func(ctx context.Context) error {
		for _, p := range w.places {
			if n := p.now; n != nil && n.self != nil {
				err := n.self.SetDesired(ctx, name, state)
				if errors.Is(err, cluster.ErrNoNode) && w.calmAt.IsZero() {
					return nil // it is gone, and nothing was wanted of it
				}
				return err
			}
		}
		return errors.New("no node runs")
	})
}

// wantAgain asks again for what was wanted: a loss of power may have cost that, and whoever wants it sees that it is not so.
func (w *World) wantAgain() {
	for _, p := range w.places {
		if state, ok := w.wanted[p.name]; ok {
			w.want(p.name, state)
		}
	}
}

func keepNode(state cluster.NodeState) func(w *World, f Fault) {
	return func(w *World, f Fault) {
		name := w.places[f.Who%len(w.places)].name
		w.want(name, state)
		w.later(f.For, func() { w.want(name, cluster.NodeLive) })
	}
}

// pauseConsumer pauses a consumer of a stream, and resumes it before its time half of the times.
func pauseConsumer(w *World, f Fault) {
	stream := []string{streams.CommandStream, streams.EffectStream, streams.EventStream}[f.Who%3]
	all := w.server.Consumers(stream)
	if len(all) == 0 {
		return
	}
	name := all[f.Who/3%len(all)]
	until := w.serverNow().Add(f.For)
	if until.After(w.pausedUntil) {
		w.pausedUntil = until
	}
	w.operator.Pause(stream, name, until)
	if f.Lose {
		w.later(f.For/2, func() { w.operator.Resume(stream, name) })
	}
}

// dropAfter is how long an entity has ended whose value is dropped; 0 keeps it.
func (w *World) dropAfter(string) time.Duration {
	if w.opts.Drops {
		return 3 * time.Second
	}
	return 0
}

// dropEnded has the values dropped of what has ended.
func dropEnded(w *World, f Fault) {
	for _, m := range w.opts.Machines {
		for _, key := range w.keys[m.Name] {
			w.operator.Drop(m.Name, key, fmt.Sprintf("drop-%d", f.Step))
		}
	}
}

// purge takes out what is stored of an entity: its value, its events, its timers or its effects. Nodes are started anew afterwards, since nothing else looks at what they have in
// memory.
func purge(w *World, f Fault) {
	m := w.opts.Machines[f.Who%len(w.opts.Machines)]
	key := w.keys[m.Name][f.Who/4%len(w.keys[m.Name])]
	stream, filter := streams.BucketStream(m.Plural), streams.BucketSubject(m.Plural, key)
	switch f.Step % 4 {
	case 1:
		stream, filter = streams.EventStream, streams.Names{}.EventsOf(m.Name, key)
	case 2:
		stream, filter = streams.EffectStream, streams.Names{}.Effect(m.Name, "*", key)
	case 3:
		stream, filter = streams.CommandStream, streams.Names{}.Timer(m.Name, key, "*")
	}
	w.operator.Purge(stream, filter, func() {
		w.lost = true // whatever comes of it
		x := w.entityOf(m, key)
		x.Purged = x.Purged || stream == streams.EventStream
	}, func() { w.purged = true })
}

// tend does for the operator what only the loop may do.
func (w *World) tend() {
	if w.purged {
		w.purged = false
		w.history.cut(w)
		for _, p := range w.places {
			if p.now != nil {
				w.crash(p.now, true)
			}
		}
	}
	if w.restored {
		w.goOn()
	}
	if b := w.replaced; b != nil {
		w.replaced = nil
		w.clear(b)
	}
	for i := 0; i < len(w.laters); i++ {
		if l := w.laters[i]; !time.Now().Before(l.at) || !w.calmAt.IsZero() {
			w.laters = append(w.laters[:i:i], w.laters[i+1:]...)
			i--
			l.do()
		}
	}
}
