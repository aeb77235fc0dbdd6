package observer

// From polls of the outside world to commands. sweep queues the entities of the index whose state has a poll, watch those that the provider (Looker) reports as changed; look
// takes one from the queue at a time (hasten, in early.go, queues those whose effects have just ended), reads its value, asks Looker.Look, and sends a finding as a command (once), whose answer is awaited so that the next look starts from it.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/publish"
)

// Looker observes the outside world for one machine.
type Looker interface {
	// Look returns what is worth reporting about an entity, if anything. polled is false when this look is not one of the regular polls: then it is not a finding to see the same as
	// last time, even where polls in a row are counted.
	Look(ctx context.Context, e *machines.Entity, polled bool) (machines.Finding, error)
	// Watch calls notify with the key of whatever changes, until ctx ends. It is an earlier trigger, not the only one.
	Watch(ctx context.Context, notify func(key string)) error
}

// Observer observes every entity in a state that has a poll: at each sweep, and earlier when its looker was notified or an effect has ended.
// Only findings become commands.
type Observer struct {
	consumers.Deps
	Machine     *machines.Machine
	Looker      Looker
	Index       *index.Index  // of the machine's bucket
	Every       time.Duration // between sweeps; 0 is the shortest poll of the table
	Timeout     time.Duration // of one look; 0 is 10 s
	Concurrency int           // observations at a time; 0 is 8

	transitEvery time.Duration // between sweeps of transitional states; 0 is 2 s

	mu       sync.Mutex
	quiet    map[string]quiet    // what need not be looked at
	looking  map[string]bool     // keys that are looked at now; true: again afterwards
	passages map[string]*passage // stays in transitional states
	queue    chan look
}

type quiet struct {
	revision uint64
	until    time.Time
}

type look struct {
	key    string
	polled bool
}

// Run looks until ctx ends.
func (o *Observer) Run(ctx context.Context) error {
	o.Deps = o.WithDefaults()
	o.Timeout, o.Concurrency = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Concurrency, 8)
	o.transitEvery = cmp.Or(o.transitEvery, transitSweep)
	states := o.states()
	if len(states) == 0 {
		return nil
	}
	o.quiet, o.looking, o.queue = map[string]quiet{}, map[string]bool{}, make(chan look, 1024)
	select {
	case <-o.Index.Ready():
	case <-ctx.Done():
		return nil
	}
	var all sync.WaitGroup
	for range o.Concurrency {
		all.Go(func() {
			for {
				select {
				case l := <-o.queue:
					o.look(ctx, l)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	all.Go(func() { o.watch(ctx) })
	all.Go(func() {
		for ok := true; ok; ok = wait.For(ctx, o.Every) {
			o.sweep(ctx, states, true)
		}
	})
	// Entities in transitional states are looked at more often, without counting as polled: something may be seen before the result of the effect that caused it has arrived, and
	// may be a finding only afterwards.
	all.Go(func() { o.hasten(ctx) })
	all.Go(func() {
		for wait.For(ctx, o.transitEvery) {
			o.sweep(ctx, o.transit(), false)
		}
	})
	all.Wait()
	return nil
}

// transitSweep is the time between observations of entities in transitional states.
const transitSweep = 2 * time.Second

func (o *Observer) transit() []string {
	var states []string
	for _, s := range o.Machine.States {
		if s.Poll != nil && s.Transitional {
			states = append(states, s.Name)
		}
	}
	return states
}

// states are those with a poll; the shortest poll is the default period.
func (o *Observer) states() []string {
	var states []string
	var shortest time.Duration
	for _, s := range o.Machine.States {
		if s.Poll == nil {
			continue
		}
		states = append(states, s.Name)
		if shortest == 0 || s.Poll.Every < shortest {
			shortest = s.Poll.Every
		}
	}
	o.Every = cmp.Or(o.Every, shortest)
	return states
}

func (o *Observer) watch(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		err := o.Looker.Watch(ctx, func(key string) { o.enqueue(ctx, look{key, false}) })
		if ctx.Err() != nil {
			return
		}
		o.Log.Warn("the provider's watch ended; polling continues", "machine", o.Machine.Name, "error", err)
		if !wait.Backoff(ctx, try) {
			return
		}
	}
}

// forget drops what is known of entities that are no longer polled.
func (o *Observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.quiet {
		item, ok := o.Index.Get(key)
		if s, known := o.Machine.State(item.State); !ok || !known || s.Poll == nil {
			delete(o.quiet, key)
		}
	}
}

// sweep queues everything that is due.
func (o *Observer) sweep(ctx context.Context, states []string, polled bool) {
	if len(states) == 0 {
		return
	}
	now := time.Now()
	for q := (index.Query{States: states, Limit: 500}); ctx.Err() == nil; {
		page := o.Index.List(q)
		for _, item := range page.Items {
			o.mu.Lock()
			calm, ok := o.quiet[item.Key]
			o.mu.Unlock()
			if polled && ok && calm.revision == item.Revision && now.Before(calm.until) {
				continue
			}
			o.enqueue(ctx, look{item.Key, polled})
		}
		if q.After = page.Next; q.After == "" {
			o.forget()
			return
		}
	}
}

func (o *Observer) enqueue(ctx context.Context, l look) {
	select {
	case o.queue <- l:
	case <-ctx.Done():
	}
}

// look observes one entity, never twice at a time: a notification during a look is followed by another look.
func (o *Observer) look(ctx context.Context, l look) {
	o.mu.Lock()
	if _, under := o.looking[l.key]; under {
		if !l.polled { // what was noticed meanwhile may be new; a poll is not
			o.looking[l.key] = true
		}
		o.mu.Unlock()
		return
	}
	o.looking[l.key] = false
	if p := o.passages[l.key]; p != nil {
		p.looked = time.Now()
	}
	o.mu.Unlock()
	for again := true; again && ctx.Err() == nil; l.polled = false {
		if err := o.once(ctx, l); err != nil && ctx.Err() == nil {
			o.Log.Warn("cannot observe an entity", "machine", o.Machine.Name, "key", l.key, "error", err)
		}
		o.mu.Lock()
		again = o.looking[l.key]
		if p := o.passages[l.key]; p != nil && again {
			p.looked = time.Now()
		}
		o.looking[l.key] = false
		if !again {
			delete(o.looking, l.key)
		}
		o.mu.Unlock()
	}
}

// see turns a panic of a looker into an error.
func (o *Observer) see(ctx context.Context, e *machines.Entity, polled bool) (finding machines.Finding, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panics.Error("looker", r)
		}
	}()
	return o.Looker.Look(ctx, e, polled)
}

func (o *Observer) once(ctx context.Context, l look) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	stored, err := o.Value(ctx, o.Machine, l.key)
	if err != nil || kv.Absent(stored) {
		return err
	}
	e, err := o.Machine.Decode(stored.Data)
	if err != nil {
		return nil // parked: the engine says so when a command comes
	}
	if s, ok := o.Machine.State(e.State); !ok || s.Poll == nil {
		return nil
	}
	finding, err := o.see(ctx, &e, l.polled)
	if err != nil {
		return err
	}
	if finding.Input == "" {
		o.mu.Lock()
		o.quiet[l.key] = quiet{stored.Sequence, finding.Until}
		o.mu.Unlock()
		return nil
	}
	data, err := json.Marshal(finding.Data)
	if err != nil {
		return fmt.Errorf("cannot write what was found: %w", err)
	}
	body, err := json.Marshal(machines.Report{Data: data})
	if err != nil {
		return err
	}
	// The answer is awaited, so that the next look starts from what this one changed.
	_, err = o.Commands.Ask(ctx, publish.Command{Machine: o.Machine.Name, Key: l.key, Name: finding.Input, Actor: "observer", Body: body})
	return err
}
