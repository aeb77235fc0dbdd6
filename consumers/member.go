package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

func (n *Node) stream() string { return "KV_" + n.Names.Bucket(streams.OwnersBucket) }

func (n *Node) subject(key string) string {
	return "$KV." + n.Names.Bucket(streams.OwnersBucket) + "." + key
}

// write stores a value at a revision. A life of 0 is for ever.
func (n *Node) write(ctx context.Context, key string, value []byte, revision uint64, life time.Duration) (uint64, error) {
	m := &nats.Msg{Subject: n.subject(key), Data: value, Header: nats.Header{}}
	streams.Expect(m, revision)
	if life > 0 {
		streams.Keep(m, life)
	}
	ctx, cancel := context.WithTimeout(ctx, max(n.Life/3, time.Second))
	defer cancel()
	r := n.Appender.Append(ctx, []streams.Write{{Stream: n.stream(), Msg: m}})[0]
	return r.Seq, r.Err
}

// read asks the bucket's leader. Without a value the revision is the one to write at.
func (n *Node) read(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := lastMessage(ctx, n.JS, n.stream(), n.subject(key))
	if err != nil || m == nil {
		return nil, 0, err
	}
	return m.Data, m.Sequence, nil
}

func (n *Node) readNode(ctx context.Context, name string) (record, uint64, error) {
	raw, revision, err := n.read(ctx, nodeKey+name)
	var r record
	if len(raw) > 0 && json.Unmarshal(raw, &r) != nil {
		r = record{}
	}
	return r, revision, err
}

// enter writes this node's key for the first time. Another process under the same name is waited for until its key has
// ended; one that renews it lives.
func (n *Node) enter(ctx context.Context) error {
	met := uint64(0) // revision of a key that is not ours
	for try := 0; ctx.Err() == nil; try++ {
		r, revision, err := n.readNode(ctx, n.Name)
		switch {
		case err != nil:
			n.Log.Warn("cannot read who lives under this node's name; trying again", "node", n.Name, "error", err)
		case r.Nonce == "" || r.Nonce == n.Nonce || r.Nonce == n.Before:
			if err = n.announceAt(ctx, revision); err == nil {
				return nil
			}
			if !errors.Is(err, streams.ErrConflict) {
				n.Log.Warn("cannot enter as a node; trying again", "node", n.Name, "error", err)
			}
		case met != 0 && revision != met:
			return n.taken(r)
		case met == 0:
			met, try = revision, 0
			n.Log.Info("a process of this node's name may still live; waiting until its key ends", "node", n.Name, "started", r.Started, "http", r.HTTP)
		}
		if !backoff(ctx, min(try, 2)) {
			break
		}
	}
	return nil
}

func (n *Node) taken(r record) error {
	return fmt.Errorf("%w: %q was started at %s and serves %s; if this data directory is a copy, give it a name of its own with --node, or delete the file \"node\" in it",
		ErrNameTaken, n.Name, r.Started.Format(time.RFC3339), orDefault(r.HTTP, "no API"))
}

// announceAt writes this node's key at a revision. What this node may do counts from before the write was sent.
func (n *Node) announceAt(ctx context.Context, revision uint64) error {
	n.mu.Lock()
	r := record{Name: n.Name, Nonce: n.Nonce, Started: n.started, Version: n.Version, HTTP: n.http, State: n.state()}
	n.mu.Unlock()
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sent := time.Since(n.base)
	next, err := n.write(ctx, nodeKey+n.Name, raw, revision, n.Life)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revision, n.known = next, r.State
	if !n.current() {
		n.stir()
	}
	n.until.Store(int64(sent + n.Life*3/4))
	return nil
}

// renew writes this node's key again and again. Where that fails it asks the leader what the key is.
func (n *Node) renew(ctx context.Context) {
	every := n.Life / 3
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.renewNow:
		case <-t.C:
		}
		wait := every
		if err := n.announceAt(ctx, n.at()); err != nil && ctx.Err() == nil {
			wait = every / 4
			n.recover(ctx, err)
		}
		select {
		case n.nudge <- struct{}{}:
		default:
		}
		t.Reset(wait)
	}
}

func (n *Node) at() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

// recover finds out where this node's key stands.
func (n *Node) recover(ctx context.Context, cause error) {
	r, revision, err := n.readNode(ctx, n.Name)
	switch {
	case err != nil:
		n.Log.Warn("cannot renew this node's key", "node", n.Name, "error", cause)
		return
	case r.Nonce != "" && r.Nonce != n.Nonce:
		n.mu.Lock()
		n.failed = n.taken(r)
		n.mu.Unlock()
		n.lapse("another process runs under its name")
		return
	}
	n.mu.Lock()
	n.revision = revision
	n.mu.Unlock()
}

// watchdog stops everything when this node may not take itself for one any more.
func (n *Node) watchdog(ctx context.Context) {
	for {
		left := time.Duration(n.until.Load()) - time.Since(n.base)
		if left <= 0 {
			n.lapse("its key was not renewed in time")
			left = n.Life / 12
		}
		if !wait(ctx, left) {
			return
		}
	}
}

// lapse ends all loops at once and gives nothing back: others take it when they see that this node has ended.
func (n *Node) lapse(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lost := 0
	for _, h := range n.holdings {
		if h != nil && !h.lost {
			h.lost, h.left = true, true
			h.abort()
			lost++
		}
	}
	n.setOwned(0)
	if lost > 0 {
		n.Log.Error("this node stops its partitions", "node", n.Name, "partitions", lost, "reason", why)
	}
	select {
	case n.nudge <- struct{}{}:
	default:
	}
}

// erase takes this node's key away; it would end by itself.
func (n *Node) erase() {
	n.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = n.write(ctx, nodeKey+n.Name, nil, n.at(), time.Second)
}

// refresh makes the view anew from the index, and adds what this node knows better.
func (n *Node) refresh() {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := survey(n.index, n.seen, time.Now())
	for p := range v.claims {
		if n.own[p].revision > v.claims[p].revision {
			v.claims[p] = n.own[p]
		}
	}
	if !reflect.DeepEqual(v, n.view) {
		n.view = v
		n.stir()
	}
	if state := n.state(); n.known != "" && state != n.known {
		select {
		case n.renewNow <- struct{}{}:
		default:
		}
	}
}

// suspect asks the leader about nodes that have not renewed their key for its life: a watch may be behind.
func (n *Node) suspect(ctx context.Context) {
	n.mu.Lock()
	var names []string
	for name := range n.view.nodes {
		if name != n.Name && time.Since(n.seen[name].at) > n.Life {
			names = append(names, name)
		}
	}
	n.mu.Unlock()
	for _, name := range names {
		r, revision, err := n.readNode(ctx, name)
		if err != nil {
			return // nobody can tell now
		}
		n.mu.Lock()
		s := n.seen[name]
		switch {
		case r.Nonce != "" && revision > s.revision:
			s.revision, s.at = revision, time.Now()
		case r.Nonce == "":
			s.gone = true
			n.Log.Warn("a node has ended", "node", name)
		} // else its key is about to end
		n.seen[name] = s
		n.mu.Unlock()
		n.refresh()
	}
}
