package cluster

// Claims of partitions. balance, called by balanceLoop (node.go) whenever the view may have changed, starts runPartition for each partition that this node should run and does
// not, and tells those to stop that it should give up. runPartition writes the claim at the revision that was read (takeClaim), calls work, the engine's loop, until that ends,
// and releases the claim for the next owner.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// pauseAfter is how long a node does not claim a partition that somebody else has, or has just taken from it.
const pauseAfter = 200 * time.Millisecond

// leaveWithin is how long a loop may take to come to an end before it is cut off.
const leaveWithin = 5 * time.Second

// balance begins and ends what the view asks for. It reports whether this node has left, or failed, and holds nothing.
func (n *Node) balance(ctx context.Context, loops *sync.WaitGroup, work Work) (ended bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	live := n.view.live()
	owned := n.owned
	for p := range streams.Partitions {
		h, want := n.runs[p], n.shouldRun(p, live)
		switch {
		case h == nil && want && time.Now().After(n.paused[p]):
			inner, abort := context.WithCancel(ctx)
			h = &run{leave: make(chan struct{}), abort: abort}
			n.runs[p] = h
			loops.Go(func() { n.runPartition(inner, p, h, work) })
		case h == nil && !want && n.isMine(p) && n.LeaseValid() && time.Now().After(n.paused[p]): // an answer was lost
			n.paused[p] = time.Now().Add(time.Second)
			loops.Go(func() { n.release(ctx, p) })
		case h != nil && !h.left && (!want || h.claimed && !n.isMine(p)): // if the bucket has lost the claim, it is written again
			h.left = true
			n.Log.Debug("stopping a partition", "partition", p)
			owned &^= 1 << p
			close(h.leave)
		}
	}
	n.setOwned(owned)
	return (n.ending || n.failed != nil) && n.busy() == 0
}

// isMine reports whether the claim is this process's own.
func (n *Node) isMine(p int) bool {
	c := n.view.claims[p]
	return c.Node == n.Name && c.Nonce == n.Nonce
}

// shouldRun reports whether this node should run the partition. It is called under the lock.
func (n *Node) shouldRun(p int, live []string) bool {
	if !n.LeaseValid() || n.failed != nil {
		return false
	}
	c := n.view.claims[p]
	switch n.state() {
	case NodeDraining:
		return false
	case NodeCordoned:
		return n.isMine(p) && n.runs[p] != nil
	}
	if self, ok := n.view.nodes[n.Name]; !ok || self.State != NodeLive { // the watch has not brought it yet
		live = append(live[:len(live):len(live)], n.Name)
	}
	if rendezvous(p, live) != n.Name {
		return false
	}
	return n.runs[p] != nil || n.isMine(p) || !n.view.alive(c) || n.index.Lag().Quiet > n.Life/2
}

// runPartition has a partition from the claim to the release.
func (n *Node) runPartition(ctx context.Context, p int, h *run, work Work) {
	defer func() {
		h.abort()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.setOwned(n.owned &^ (1 << p))
		n.runs[p] = nil
		n.notify()
		signal(n.wake)
	}()
	if err := n.takeClaim(ctx, p); err != nil {
		n.mu.Lock()
		n.paused[p] = time.Now().Add(pauseAfter)
		n.mu.Unlock()
		if !errors.Is(err, kv.ErrHeld) && ctx.Err() == nil {
			n.Log.Warn("cannot claim a partition; retrying", "partition", p, "error", err)
		}
		return
	}
	n.mu.Lock()
	begin := !h.left
	h.claimed = true
	if begin {
		n.setOwned(n.owned | 1<<p)
	}
	n.mu.Unlock()
	if begin {
		ended := make(chan struct{})
		go func() {
			select {
			case <-h.leave:
				if !wait.For(ctx, leaveWithin) {
					return
				}
				n.Log.Warn("a partition does not stop; cutting it off", "partition", p)
				h.abort()
			case <-ended:
			case <-ctx.Done():
			}
		}()
		work(ctx, h.leave, p)
		close(ended)
		n.Log.Debug("a partition has stopped", "partition", p)
	}
	n.mu.Lock()
	lost := h.lost
	if n.view.claims[p].Node != "" && !n.isMine(p) { // where the bucket has lost the keys of nodes, they take each other for gone until they have renewed them
		n.paused[p] = time.Now().Add(pauseAfter)
	}
	n.mu.Unlock()
	if !lost {
		n.release(context.WithoutCancel(ctx), p)
		n.Log.Debug("released a partition", "partition", p)
	}
}

// takeClaim writes the claim of a partition if nobody who lives has it.
func (n *Node) takeClaim(ctx context.Context, p int) error {
	n.mu.Lock()
	c := n.view.claims[p]
	n.mu.Unlock()
	me := claim{Node: n.Name, Nonce: n.Nonce, Since: time.Now().UTC().Truncate(time.Millisecond)}
	for range 3 {
		if err := n.checkFree(ctx, c); err != nil {
			return err
		}
		err := n.writeClaim(ctx, p, me, c.revision)
		if err == nil {
			return nil
		}
		raw, revision, errRead := n.read(ctx, keyOf(p))
		if errRead != nil {
			return errors.Join(err, errRead)
		}
		c = readClaim(raw, revision)
		n.noteClaim(p, c)
	}
	return fmt.Errorf("the claim of partition %d changes all the time: %w", p, kv.ErrHeld)
}

// checkFree returns an error when a claim is held by a process that lives. It asks the bucket's leader whether that has ended, because the view may be behind.
func (n *Node) checkFree(ctx context.Context, c claim) error {
	if c.Node == "" || c.Node == n.Name { // of this node: an earlier process, which has ended
		return nil
	}
	r, revision, err := n.readNode(ctx, c.Node)
	if err != nil {
		return fmt.Errorf("cannot ask whether node %s lives: %w", c.Node, err)
	}
	if !c.of(r) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.seen[c.Node]; revision != s.Revision {
		n.seen[c.Node] = lastSeen{LastSeen: kv.LastSeen{Revision: revision, At: n.clock()}}
	}
	return kv.ErrHeld
}

func (n *Node) writeClaim(ctx context.Context, p int, c claim, revision uint64) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if c.revision, err = n.write(ctx, keyOf(p), raw, revision, 0); err != nil {
		return err
	}
	n.noteClaim(p, c)
	return nil
}

func (n *Node) noteClaim(p int, c claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.revision > n.latest[p].revision {
		n.latest[p] = c
	}
	if c.revision > n.view.claims[p].revision {
		n.view.claims[p] = c
	}
}

// release gives the claim back, if it is still this process's own. Without an answer it is tried again.
func (n *Node) release(ctx context.Context, p int) {
	n.mu.Lock()
	c, mine := n.view.claims[p], n.isMine(p)
	n.mu.Unlock()
	if !mine {
		return
	}
	err := n.writeClaim(ctx, p, claim{Since: time.Now().UTC().Truncate(time.Millisecond)}, c.revision)
	if err != nil && !errors.Is(err, publish.ErrConflict) {
		n.Log.Warn("cannot release a partition; others take it when this node's key expires", "partition", p, "error", err)
	}
}
