package cluster

// Keys of nodes in the bucket of owners: the own one, by which others know that this node lives, and those of the others. join writes the own key, renew rewrites it three times
// in its life, and watchLease stops all partitions when that has failed for too long (loseLease). refreshView builds the view of nodes and claims from the index of the bucket,
// by which partitions.go decides, and expireSilent marks nodes as ended that have not renewed their key.

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
			n.Log.Warn("cannot read the key of this node's name; retrying", "node", n.Name, "error", err)
		case r.Nonce == "" || r.Nonce == n.Nonce || slices.Contains(n.Before, r.Nonce) || met.Revision == revision && met.Expired(r.Life, n.Life, n.clock()):
			if err = n.writeKey(ctx, revision); err == nil {
				return nil
			}
			if !errors.Is(err, publish.ErrConflict) {
				n.Log.Warn("cannot register this node; retrying", "node", n.Name, "error", err)
			}
		case met.Revision != 0 && revision != met.Revision:
			return n.errNameTaken(r)
		case met.Revision == 0:
			met, try = kv.LastSeen{Revision: revision, At: n.clock()}, 0
			n.Log.Info("another process may still run under this node's name; waiting for its key to expire", "node", n.Name, "started", r.Started, "http", r.HTTP)
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
	r := record{Name: n.Name, Nonce: n.Nonce, Started: n.started, Version: n.Version, HTTP: n.http, State: n.state(), Life: n.Life.String(), Offers: n.offered()}
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
	if !n.LeaseValid() { // if the others could not renew their keys either, they do so now
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
	now := n.renewNow
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
		case <-t.C:
		}
		next := every
		n.compareClocks()
		now = n.renewNow
		if err := n.writeKey(ctx, n.keyRevision()); err != nil && ctx.Err() == nil {
			next = every / 4
			now = nil // who asked for this asks again at once, and without a connection it fails at once
			n.recheckKey(ctx, err)
		}
		signal(n.wake)
		t.Reset(next)
	}
}

func (n *Node) keyRevision() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.revision
}

// recheckKey reads this node's key after a failed write.
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

// watchLease stops everything when this node's own key has not been renewed in time.
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
	signal(n.wake)
}

// markEnded marks this node as ended, which others would find out only after its life. The last renewal may have been cut off before its
// answer: then the key has a revision that this node does not know, and is asked for.
func (n *Node) markEnded() {
	n.until.Store(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	revision := n.keyRevision()
	for try := 0; ; try++ {
		_, err := n.writeEnded(ctx, n.Name, revision)
		if err == nil {
			return
		}
		if !wait.Backoff(ctx, try) {
			n.Log.Warn("cannot mark this node as ended; others see it when its key expires", "node", n.Name, "error", err)
			return
		}
		r, at, err := n.readNode(ctx, n.Name)
		if err != nil {
			continue
		}
		if r.Nonce != n.Nonce { // it is marked, or another process has the name
			return
		}
		revision = at
	}
}

// writeEnded marks a node as ended, if its key is still at the revision. The mark expires by itself: having no key means the same.
func (n *Node) writeEnded(ctx context.Context, name string, revision uint64) (uint64, error) {
	return n.write(ctx, nodeKey+name, nil, revision, time.Minute)
}

// refreshView builds the view from the index, and adds the claims that this node itself has written or read since.
func (n *Node) refreshView() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if builds := n.index.Stats().Builds; builds != n.builds { // the bucket may have fallen back: revisions say nothing any more
		n.builds, n.latest = builds, [streams.Partitions]claim{}
		clear(n.seen)
	}
	v, revision := buildView(n.index, n.seen, n.clock())
	for p := range v.claims {
		if n.latest[p].revision > revision {
			v.claims[p] = n.latest[p]
		}
	}
	if !reflect.DeepEqual(v, n.view) {
		n.view = v
		n.notify()
	}
	if state := n.state(); n.announced != "" && state != n.announced {
		signal(n.renewNow)
	}
}

// expireSilent marks nodes as ended that have not renewed their key for its life. A node that could not renew its own key judges no others.
func (n *Node) expireSilent(ctx context.Context) {
	if !n.LeaseValid() {
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
			return // it cannot be decided now
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
		n.Log.Warn("a node has left: it did not renew its key", "node", name, "for", kv.LifeOf(r.Life, n.Life))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[name].Revision == before {
		n.seen[name] = s
	}
	return nil
}
