package cluster

import (
	"context"
	"maps"
	"time"

	"github.com/bcc94042/instar/consumers"
)

// When [Node.While] ends the work of a node that cannot renew its key: before the server gives what that has under way to others, which takes it at least 20 s (an ack wait of 30 s, less the 10 s
// between two signs of life), and long after what a slow renewal takes.
const (
	cutOff    = 15 * time.Second // after the time that its last renewal gave it
	lookEvery = time.Second
)

// While calls work for as long as this node is live, or was and is cordoned: what all nodes do at the same time, and a [Role] does not. It returns what work returns. The context of work ends when the
// node is to be drained, and, with the cause [consumers.ErrCutOff], when its key was not renewed for 20 s; While waits until it is live again then.
func (n *Node) While(ctx context.Context, work func(context.Context) error) error {
	for {
		state, changed := n.Eligible()
		if state == NodeLive {
			if again, err := n.whileIn(ctx, work); !again {
				return err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// whileIn runs work until that ends, or is ended: again says that it may be called once more.
func (n *Node) whileIn(ctx context.Context, work func(context.Context) error) (again bool, err error) {
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // so that the cause is known when it ends, also of one that was frozen and is to stop
	defer cancel(nil)
	ended := make(chan error, 1)
	n.works(true)
	go func() {
		err := work(inner)
		n.works(false) // before another work may begin
		ended <- err
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		until := time.Duration(n.until.Load()) // before it waits: who was frozen may have renewed its key when it looks
		state, changed := n.Eligible()
		if state != NodeDraining {
			select {
			case err := <-ended:
				return false, err
			case <-changed:
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		var cause error
		if n.clock()-until > cutOff {
			cause = consumers.ErrCutOff
			n.Log.Error("this node ends its work: its key was not renewed in time", "node", n.Name)
		}
		if cause != nil || state == NodeDraining || ctx.Err() != nil {
			cancel(cause)
			err := <-ended
			return err == nil && ctx.Err() == nil, err
		}
	}
}

// Takes reports whether this node takes what is new: an operator has neither cordoned nor drained it, and it offers something, if it offers anything ([Node.Offer]). The channel is closed when anything changes.
func (n *Node) Takes() (bool, <-chan struct{}) {
	n.prepare()
	n.mu.Lock()
	defer n.mu.Unlock()
	nothing := len(n.offers) > 0
	for _, much := range n.offers {
		nothing = nothing && much == 0
	}
	return n.state() == NodeLive && !nothing, n.anyChange
}

// Offer publishes, in this node's key, how much there is of something here while [Node.While] works and the node takes what is new, and that there is none else: others can sum it up ([NodeInfo.Offers]).
func (n *Node) Offer(what string, much int) {
	n.prepare()
	n.mu.Lock()
	offers := maps.Clone(n.offers)
	if offers == nil {
		offers = map[string]int{}
	}
	offers[what] = much
	n.offers = offers
	n.notify()
	n.mu.Unlock()
	n.wakeLoops()
}

// offered are the offers as they are now. It is called under the lock.
func (n *Node) offered() map[string]int {
	if n.working && n.state() == NodeLive {
		return n.offers
	}
	none := map[string]int{}
	for what := range n.offers {
		none[what] = 0
	}
	return none
}

func (n *Node) works(does bool) {
	n.mu.Lock()
	n.working = does
	n.mu.Unlock()
	n.wakeLoops()
}
