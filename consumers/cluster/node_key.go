package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

func (n *Node) bucket() string { return n.Names.Bucket(streams.OwnersBucket) }

// write stores a value at a revision. A life of 0 is for ever.
func (n *Node) write(ctx context.Context, key string, value []byte, revision uint64, life time.Duration) (uint64, error) {
	w := kv.WriteAt(n.bucket(), key, value, revision)
	if life > 0 {
		streams.Keep(w.Msg, life)
	}
	ctx, cancel := context.WithTimeout(ctx, max(n.Life/3, time.Second))
	defer cancel()
	r := n.Appender.Append(ctx, []publish.Write{w})[0]
	return r.Seq, r.Err
}

// read asks the bucket's leader. Without a value the revision is the one to write at.
func (n *Node) read(ctx context.Context, key string) ([]byte, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := kv.Read(ctx, n.JS.Conn(), n.bucket(), key)
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

// join writes this node's key for the first time. Another process under the same name is waited for until it has not
// renewed its key for the life that it gave it; one that renews it lives.
func (n *Node) join(ctx context.Context) error {
	var met kv.LastSeen // a key that is not ours
	for try := 0; ctx.Err() == nil; try++ {
		r, revision, err := n.readNode(ctx, n.Name)
		switch {
		case err != nil:
			n.Log.Warn("cannot read who lives under this node's name; trying again", "node", n.Name, "error", err)
		case r.Nonce == "" || r.Nonce == n.Nonce || slices.Contains(n.Before, r.Nonce) || met.Revision == revision && met.Expired(r.Life, n.Life, n.clock()):
			if err = n.writeKey(ctx, revision); err == nil {
				return nil
			}
			if !errors.Is(err, publish.ErrConflict) {
				n.Log.Warn("cannot enter as a node; trying again", "node", n.Name, "error", err)
			}
		case met.Revision != 0 && revision != met.Revision:
			return n.errNameTaken(r)
		case met.Revision == 0:
			met, try = kv.LastSeen{Revision: revision, At: n.clock()}, 0
			n.Log.Info("a process of this node's name may still live; waiting until its key ends", "node", n.Name, "started", r.Started, "http", r.HTTP)
		}
		if !wait.Backoff(ctx, min(try, 2)) {
			break
		}
	}
	return nil
}

func (n *Node) errNameTaken(r record) error {
	return fmt.Errorf("%w: %q was started at %s and serves %s; if this data directory is a copy, give it a name of its own with --node, or delete the file \"node\" in it",
		ErrNameTaken, n.Name, r.Started.Format(time.RFC3339), cmp.Or(r.HTTP, "no API"))
}

// writeKey writes this node's key at a revision. What this node may do counts from before the write was sent.
func (n *Node) writeKey(ctx context.Context, revision uint64) error {
	n.mu.Lock()
	r := record{Name: n.Name, Nonce: n.Nonce, Started: n.started, Version: n.Version, HTTP: n.http, State: n.state(), Life: n.Life.String()}
	n.mu.Unlock()
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sent, at := n.clock(), n.wall()
	next, err := n.write(ctx, nodeKey+n.Name, raw, revision, 0)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.revision, n.announced, n.wrote = next, r.State, renewal{next, at, n.wall()}
	if !n.Current() { // if the others could not renew their keys either, they do so now
		for name, s := range n.seen {
			s.At = max(s.At, sent-kv.LifeOf(n.view.nodes[name].Life, n.Life)*3/4)
			n.seen[name] = s
		}
		n.notify()
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
		next := every
		n.compareClocks()
		if err := n.writeKey(ctx, n.keyRevision()); err != nil && ctx.Err() == nil {
			next = every / 4
			n.recheckKey(ctx, err)
		}
		select {
		case n.wake <- struct{}{}:
		default:
		}
		t.Reset(next)
	}
}

func (n *Node) keyRevision() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

// recheckKey finds out where this node's key stands.
func (n *Node) recheckKey(ctx context.Context, cause error) {
	r, revision, err := n.readNode(ctx, n.Name)
	switch {
	case err != nil:
		n.Log.Warn("cannot renew this node's key", "node", n.Name, "error", cause)
		return
	case r.Nonce != "" && r.Nonce != n.Nonce:
		n.mu.Lock()
		n.failed = n.errNameTaken(r)
		n.mu.Unlock()
		n.loseLease("another process runs under its name")
		return
	}
	n.mu.Lock()
	n.revision = revision
	n.mu.Unlock()
}

// watchLease stops everything when this node may not take itself for one any more.
func (n *Node) watchLease(ctx context.Context) {
	for {
		left := time.Duration(n.until.Load()) - n.clock()
		if left <= 0 {
			n.loseLease("its key was not renewed in time")
			left = n.Life / 12
		}
		if !wait.For(ctx, left) {
			return
		}
	}
}

// loseLease ends all loops at once and gives nothing back: others take it when they see that this node has ended.
func (n *Node) loseLease(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lost := 0
	for _, h := range n.runs {
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
	case n.wake <- struct{}{}:
	default:
	}
}

// markEnded says that this node has ended; others would find it out.
func (n *Node) markEnded() {
	n.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = n.writeEnded(ctx, n.Name, n.keyRevision())
}

// writeEnded says that a node has ended, if its key is still at the revision. The note goes by itself: no key says the same.
func (n *Node) writeEnded(ctx context.Context, name string, revision uint64) (uint64, error) {
	return n.write(ctx, nodeKey+name, nil, revision, time.Minute)
}

// refreshView makes the view anew from the index, and adds what this node knows better.
func (n *Node) refreshView() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if builds := n.index.Stats().Builds; builds != n.builds { // the bucket may have fallen back: revisions say nothing any more
		n.builds, n.own = builds, [streams.Partitions]claim{}
		clear(n.seen)
	}
	v, revision := buildView(n.index, n.seen, n.clock())
	for p := range v.claims {
		if n.own[p].revision > revision {
			v.claims[p] = n.own[p]
		}
	}
	if !reflect.DeepEqual(v, n.view) {
		n.view = v
		n.notify()
	}
	if state := n.state(); n.announced != "" && state != n.announced {
		select {
		case n.renewNow <- struct{}{}:
		default:
		}
	}
}

// expireSilent ends nodes that have not renewed their key for its life. A node that could not renew its own judges nobody.
func (n *Node) expireSilent(ctx context.Context) {
	if !n.Current() {
		return
	}
	n.mu.Lock()
	var names []string
	for name, r := range n.view.nodes {
		if s := n.seen[name]; name != n.Name && s.Expired(r.Life, n.Life, n.clock()) {
			names = append(names, name)
		}
	}
	n.mu.Unlock()
	for _, name := range names {
		if err := n.expire(ctx, name); err != nil {
			return // nobody can tell now
		}
		n.refreshView()
	}
}

// expire asks for a node's key, as a watch may be behind, and ends the node when it has not been renewed. Should the answer be
// behind as well, the bucket refuses the end.
func (n *Node) expire(ctx context.Context, name string) error {
	r, revision, err := n.readNode(ctx, name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	s := n.seen[name]
	n.mu.Unlock()
	before := s.Revision
	switch {
	case r.Nonce == "":
		s.gone = true
	case revision != s.Revision:
		s.See(revision, n.clock())
	default:
		if s.Revision, err = n.writeEnded(ctx, name, s.Revision); errors.Is(err, publish.ErrConflict) {
			return nil // it lives, or another one has said so
		} else if err != nil {
			return err
		}
		s.gone = true
		n.Log.Warn("a node has ended: it did not renew its key", "node", name, "for", kv.LifeOf(r.Life, n.Life))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[name].Revision == before {
		n.seen[name] = s
	}
	return nil
}
