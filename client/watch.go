package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// change is a snapshot or a delta.
type change struct {
	Index     uint64     `json:"index"`
	Stale     float64    `json:"staleSeconds"` // the node may be behind by so much
	Protected bool       `json:"protected"`
	Instances []Endpoint `json:"instances"`
	Put       []Endpoint `json:"put"`
	Remove    []string   `json:"remove"`
}

// watch follows the service until ctx ends, at one node after the other.
func (r *Resolver) watch(ctx context.Context) {
	urls := r.client.urls()
	next := int(r.client.preferred.Load())
	for failed := 0; ctx.Err() == nil; next++ {
		before := r.Index()
		err := r.stream(ctx, next%len(urls))
		r.mu.Lock()
		r.connected, r.lastErr = false, err
		r.mu.Unlock()
		if failed++; r.Index() != before || errors.Is(err, errEnded) || errors.Is(err, errBehind) {
			failed = 0
		}
		if failed == len(urls) {
			r.recall()
		}
		pause := firstRetry << min(max(failed-len(urls), 0), 5) // every node is tried once at once
		wait(ctx, min(time.Duration(float64(pause)*(0.5+rand.Float64())), lastRetry))
	}
}

var (
	errEnded  = errors.New("the registry ended the watch")
	errSilent = errors.New("the registry says nothing any more")
	errBehind = errors.New("the node of the registry is behind")
	errOlder  = errors.New("the node of the registry is behind, and knows less than is known here")
)

// stream is one connection: it goes on where the last one ended.
func (r *Resolver) stream(ctx context.Context, node int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(callTimeout, func() { cancel(errSilent) })
	defer quiet.Stop()
	req, err := r.client.request(ctx, r.client.urls()[node], request{method: http.MethodGet, path: "/v1/discover/" + url.PathEscape(r.service) + "/watch", query: r.query}, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "identity") // a compressor may hold back what is small
	if place := r.lastPlace(); place != "" {
		req.Header.Set("Last-Event-ID", place)
	}
	resp, err := r.client.http().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnprocessableEntity { // a registry of another version: the next try begins anew
		r.mu.Lock()
		r.place = ""
		r.mu.Unlock()
	}
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return problem(resp, raw)
	}
	if r.Index() > 0 { // it may wait until it knows as much, before it says anything
		quiet.Reset(silence)
	}
	first := true // until it has said how it stands, its words say nothing about what is known
	err = readEvents(resp.Body, func() { quiet.Reset(silence); r.alive() }, func(ev event) error {
		if first && ev.name == "" { // a node that is behind says so before anything else
			r.behind(0)
		}
		err := r.take(ev)
		if first && err == nil {
			first = false
			r.client.preferred.Store(uint32(node)) // an index
		}
		return err
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (r *Resolver) lastPlace() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place
}

func (r *Resolver) isReady() bool {
	select {
	case <-r.ready:
		return true
	default:
		return false
	}
}

// take applies one event. An event that cannot be read ends the connection, and the next one begins with a snapshot.
func (r *Resolver) take(ev event) error {
	var (
		c   change
		err error
	)
	switch ev.name {
	case "end":
		return errEnded
	case "snapshot", "delta", "stale":
		if err := json.Unmarshal(ev.data, &c); err != nil {
			r.mu.Lock()
			r.index, r.place = 0, ""
			r.mu.Unlock()
			return fmt.Errorf("cannot read a %s of %s: %w", ev.name, r.service, err)
		}
		if err = r.news(ev.name, c); errors.Is(err, errOlder) {
			return err // nothing was taken
		}
	}
	number, _, _ := strings.Cut(ev.id, "-") // behind it is what tells the registry which list this is
	if index, err := strconv.ParseUint(number, 10, 64); err == nil {
		r.mu.Lock()
		r.index, r.place = index, ev.id
		r.mu.Unlock()
	}
	r.confirmSoon()
	return err
}

// news takes what a registry says.
func (r *Resolver) news(kind string, c change) error {
	move := false
	switch kind {
	case "delta":
		r.learn(c, false)
	case "snapshot":
		if r.older(c) {
			return errOlder
		}
		move = r.learn(c, true)
	default:
		move = r.behind(c.Stale)
	}
	if move {
		return errBehind
	}
	return nil
}

// older says whether a snapshot would lead back in time. A node that is behind may know less than others have told; one
// that is not, and has a lower index, has another store: its backup was restored.
func (r *Resolver) older(c change) bool {
	if c.Stale == 0 || !r.isReady() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.index > 0 {
		return c.Index < r.index
	}
	return heldAt(c.Stale).Before(r.heard) // of a list from the cache, the index is not known
}

// learn takes a list, or changes of one; true when another node is to be asked.
func (r *Resolver) learn(c change, whole bool) (move bool) {
	r.listing.Lock()
	defer r.listing.Unlock()
	r.mu.Lock()
	r.apply(c, whole)
	if whole {
		move = r.stands(c.Stale)
	}
	r.mu.Unlock()
	if whole && !r.isReady() {
		close(r.ready)
	}
	r.tell()
	return move
}

// alive says that the node that is connected is there.
func (r *Resolver) alive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connected && !r.stale {
		r.heard = time.Now()
	}
}

// moveEvery is how often another node is tried because the one that is connected is behind: they may all be.
const moveEvery = 10 * time.Second

// behind notes by how many seconds the node may be behind; true when another one is to be asked.
func (r *Resolver) behind(seconds float64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stands(seconds)
}

// stands is behind with the lock held.
func (r *Resolver) stands(seconds float64) bool {
	believed := r.connected && !r.stale || !r.isReady() // what is known comes from this node
	if r.connected, r.stale = true, seconds > 0; !r.stale {
		r.heard = time.Now()
		return false
	}
	if held := heldAt(seconds); believed || held.After(r.heard) {
		r.heard = held
	}
	if len(r.client.urls()) == 1 || time.Since(r.moved) < moveEvery {
		return false
	}
	r.moved = time.Now()
	return true
}

// heldAt is when what a node says was last known to hold.
func heldAt(staleSeconds float64) time.Time {
	return time.Now().Add(-time.Duration(staleSeconds * float64(time.Second)))
}

// apply changes the list. Targets that stay keep what is known of them. The lock is held.
func (r *Resolver) apply(c change, whole bool) {
	put := c.Put
	if whole {
		put = c.Instances
		keep := make(map[string]bool, len(put))
		for _, e := range put {
			keep[e.InstanceID] = true
		}
		for id := range r.targets {
			if !keep[id] {
				c.Remove = append(c.Remove, id)
			}
		}
	}
	for _, id := range c.Remove {
		if t := r.targets[id]; t != nil {
			delete(r.targets, id)
			r.retire(t)
		}
	}
	for _, e := range put {
		if old := r.targets[e.InstanceID]; old == nil || old.NodeAddress != e.NodeAddress || old.Generation != e.Generation {
			if old != nil {
				r.retire(old)
			}
			r.targets[e.InstanceID] = &target{Endpoint: e}
		} else {
			old.Endpoint = e
		}
	}
	r.order, r.list = r.order[:0:0], r.list[:0:0]
	for _, t := range r.targets {
		r.order = append(r.order, t)
	}
	slices.SortFunc(r.order, func(a, b *target) int { return cmp.Compare(a.InstanceID, b.InstanceID) })
	for _, t := range r.order {
		r.list = append(r.list, t.Endpoint)
	}
	r.index, r.protected = c.Index, c.Protected
	r.changes++
}

// retire remembers a target that has gone while calls to it are under way.
func (r *Resolver) retire(t *target) {
	if t.gone = true; t.inFlight > 0 {
		r.leaving = append(r.leaving, t)
	}
	t.over()
}

func (r *Resolver) confirmSoon() {
	select {
	case r.dirty <- struct{}{}:
	default:
	}
}

// confirm tells the registry what is applied: at once, and again before it forgets.
func (r *Resolver) confirm(ctx context.Context) {
	again := time.NewTicker(ackEvery)
	defer again.Stop()
	late := time.NewTimer(recallAfter)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			r.remember(true)
			r.leave(ctx)
			return
		case <-late.C:
			r.recall()
		case <-r.dirty:
			r.remember(false)
		case <-again.C:
			r.remember(false)
		}
		index := r.Index() // what comes while this one settles is confirmed after a hold of its own
		r.settle(ctx)
		if index == 0 {
			continue
		}
		err := r.say(ctx, index)
		if err != nil && elsewhere(err) && wait(ctx, firstRetry) && r.connectedNow() {
			r.confirmSoon()
		}
	}
}

func (r *Resolver) say(ctx context.Context, index uint64) error {
	path := "/v1/services/" + url.PathEscape(r.service) + "/watchers/" + url.PathEscape(r.opts.Watcher)
	return r.client.do(ctx, request{method: http.MethodPost, path: path, in: map[string]uint64{"index": index}})
}

const (
	everything  = 1<<53 - 1 // an index beyond all: nothing will be sent to anybody
	leaveWithin = 500 * time.Millisecond
)

// leave confirms all that is to come, so that drains do not wait until the registry forgets this watcher.
func (r *Resolver) leave(ctx context.Context) {
	if r.named || r.Index() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	_ = r.say(ctx, everything) // it is forgotten by itself
}

func (r *Resolver) connectedNow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.connected
}

// settle waits until the calls to what has gone are over, but not for long: those that take longer have reached it.
func (r *Resolver) settle(ctx context.Context) {
	r.mu.Lock()
	left := slices.Clone(r.leaving)
	r.mu.Unlock()
	for end := time.Now().Add(ackHold); len(left) > 0 && time.Now().Before(end); {
		r.mu.Lock()
		left = slices.DeleteFunc(left, func(t *target) bool { return t.inFlight == 0 })
		r.leaving = slices.DeleteFunc(r.leaving, func(t *target) bool { return t.inFlight == 0 })
		r.mu.Unlock()
		if len(left) > 0 && !wait(ctx, 5*time.Millisecond) {
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leaving = slices.DeleteFunc(r.leaving, func(t *target) bool { return slices.Contains(left, t) })
}
