package relay

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/streams/outbox"
)

// Perform does one task of a relay.
func (p *Provider) Perform(ctx context.Context, task machines.Task) machines.Result {
	data, err := p.perform(ctx, &task)
	if err != nil {
		return machines.Result{Failure: providers.Failure(err)}
	}
	return machines.Result{Data: data}
}

func (p *Provider) perform(ctx context.Context, task *machines.Task) (any, error) {
	var body relay.Task
	if err := json.Unmarshal(task.Data, &body); err != nil {
		return nil, providers.Errorf(providers.Invalid, "cannot read the task %s: %v", task.Attempt, err)
	}
	u := p.units[body.Source]
	gone := task.Effect == relay.EffectStop || task.Effect == relay.EffectRemove
	switch {
	case u == nil && task.Effect == relay.EffectStop: // what is not configured does not run
		return struct{}{}, nil
	case u == nil && gone: // another node may have it
		return nil, providers.Errorf(providers.Unavailable, "no source %q is configured on this server: what its relay said of the lag, which limits appending, cannot be taken away; add it to outbox.sources, or purge the relay, which leaves that there", body.Source)
	case u == nil:
		return nil, unknown(body.Source)
	case task.Namespace != p.namespace && gone:
		return struct{}{}, nil
	case task.Namespace != p.namespace:
		return nil, providers.Errorf(providers.Invalid, "sources are relayed in the namespace %s", p.namespace)
	}
	if task.Effect == relay.EffectLook {
		o, _ := p.observe(ctx, u) // it says why itself
		return o, nil
	}
	wish := Relay
	switch {
	case gone:
		wish = Stand
	case task.Effect == relay.EffectDrain:
		wish = Drain
	}
	if seen := u.follow(wish, task.Fence); seen > task.Fence {
		return nil, providers.Older(task.Fence, seen)
	}
	switch task.Effect {
	case relay.EffectStart:
		return p.start(ctx, u)
	case relay.EffectStop:
		return struct{}{}, u.stop(ctx)
	case relay.EffectDrain:
		return p.drain(ctx, u)
	case relay.EffectRemove:
		return struct{}{}, u.remove(ctx)
	}
	return nil, providers.Errorf(providers.Invalid, "no relay performs the effect %q", task.Effect)
}

// start waits until the engine runs and can be looked at.
func (p *Provider) start(ctx context.Context, u *unit) (any, error) {
	if err := u.awaitUp(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if _, err := u.status(ctx); err != nil {
		return nil, u.foreign(err)
	}
	o, _ := p.observe(ctx, u)
	if o.Fatal {
		return nil, providers.Errorf(providers.Invalid, "%s", o.Problem)
	}
	return o, nil
}

// awaitUp returns when the engine runs, or with why it does not.
func (u *unit) awaitUp(ctx context.Context) error {
	u.mu.Lock()
	if u.running {
		u.mu.Unlock()
		return nil
	}
	if u.up == nil {
		u.up = make(chan struct{})
	}
	up, ends := u.up, u.ends
	u.mu.Unlock()
	u.wake() // do not wait for the end of a back-off
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-up:
			return nil
		case <-tick.C:
			u.mu.Lock()
			err, more := u.problem, u.ends > ends
			u.mu.Unlock()
			if more && err != nil {
				return u.foreign(err)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (u *unit) stop(ctx context.Context) error {
	u.mu.Lock()
	idle, running := u.idle, u.running
	u.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until the engine has ended by itself. What does not run now is tried again meanwhile: the deadline of the
// entity ends the wait.
func (p *Provider) drain(ctx context.Context, u *unit) (any, error) {
	u.mu.Lock()
	version := u.version
	u.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		u.mu.Lock()
		done, seen, problem := u.drained == version && !u.running, u.version, u.problem
		u.mu.Unlock()
		switch {
		case done:
			o, _ := p.observe(ctx, u)
			return o, nil
		case seen != version:
			return nil, providers.Older(version, seen)
		case u.fatal(problem):
			return nil, u.foreign(problem)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (u *unit) remove(ctx context.Context) error {
	if err := u.stop(ctx); err != nil {
		return err
	}
	engine, err := u.open(ctx)
	if err != nil {
		return u.foreign(err)
	}
	if err := engine.Remove(ctx); err != nil {
		return u.foreign(err)
	}
	u.close()
	return nil
}

// foreign is an error of the database, of NATS or of the engine: it may be over soon, unless it is fatal.
func (u *unit) foreign(err error) error {
	var known *providers.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case u.fatal(err):
		return providers.Errorf(providers.Invalid, "%s", discreet(err.Error()))
	}
	return providers.Errorf(providers.Unavailable, "%s", discreet(err.Error()))
}

// What errors of databases say of how one gets in: names of users and databases, and whole addresses.
var (
	credentials = regexp.MustCompile("failed to connect to `[^`]*`:?")
	address     = regexp.MustCompile(`postgres(ql)?://[^\s)]+`)
)

// discreet leaves that out of a text.
func discreet(text string) string {
	return address.ReplaceAllString(credentials.ReplaceAllString(text, "cannot connect:"), "the database")
}

func (u *unit) fatal(err error) bool {
	return err != nil && u.source.Fatal != nil && u.source.Fatal(err)
}

// lookTimeout bounds one look at a database.
const lookTimeout = 5 * time.Second

// Look observes one relay and gives the report to send, if there is any news.
func (p *Provider) Look(ctx context.Context, e *machines.Entity, _ bool) (machines.Finding, error) {
	u := p.units[e.ID]
	if u == nil || e.Namespace != p.namespace {
		return machines.Finding{}, nil // its start has said why
	}
	o, why := p.observe(ctx, u)
	if errors.Is(why, ErrNotYet) || !relay.Meaningful(e, &o) {
		return machines.Finding{}, nil
	}
	return machines.Finding{Input: relay.ReportObserved, Data: o}, nil
}

// observe says how a relay stands; what cannot be seen is a problem, too, and returned besides.
func (p *Provider) observe(ctx context.Context, u *unit) (relay.Observation, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s, err := u.status(ctx)
	u.mu.Lock()
	active, wish, trouble := u.running, u.wish, u.problem
	u.mu.Unlock()
	o := relay.Observation{
		Mode: string(s.Mode), Active: active, Rows: s.Rows, Oldest: s.Oldest, Lag: s.Lag, FenceWait: s.FenceWait, Rate: s.Rate,
		Problem: s.Problem, Waiting: len(s.Parked), Node: p.node, At: time.Now().UTC(),
	}
	if o.Mode == "" {
		o.Mode = u.source.Mode
	}
	for _, k := range s.Parked {
		o.Parked = append(o.Parked, parkedOf(k))
	}
	for _, h := range s.Shards {
		o.Shards = append(o.Shards, relay.Shard(h))
	}
	switch {
	case trouble != nil:
		o.Problem, o.Fatal = trouble.Error(), u.fatal(trouble)
	case err != nil:
		o.Problem, o.Fatal = err.Error(), u.fatal(err)
	}
	o.Problem = providers.Failure(providers.Errorf(providers.Internal, "%s", discreet(o.Problem))).Message
	o.Still = u.still(&s, err != nil || o.Problem != "" || wish != Stand && !active).Seconds()
	return o, errors.Join(trouble, err)
}

func parkedOf(k outbox.Parked) relay.Parked { return relay.Parked(k) }
