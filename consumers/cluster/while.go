package cluster

import (
	"context"
	"maps"
)

// While calls work for as long as this node is live, or was and is cordoned: what all nodes do at the same time, and a [Role] does not. It returns what work returns; the context of work ends when the
// node is to be drained, and While waits until it is live again.
func (n *Node) While(ctx context.Context, work func(context.Context) error) error {
	for {
		state, changed := n.Eligible()
		if state != NodeLive {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		inner, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		n.works(true)
		go func() { defer n.works(false); ended <- work(inner) }()
		for state != NodeDraining {
			select {
			case <-changed:
				state, changed = n.Eligible()
				continue
			case err := <-ended:
				cancel()
				return err
			}
		}
		cancel()
		if err := <-ended; err != nil {
			return err
		}
	}
}

// Offer publishes, in this node's key, how much there is of something here while [Node.While] works, and that there is none else: others can sum it up ([NodeInfo.Offers]).
func (n *Node) Offer(what string, much int) {
	n.prepare()
	n.mu.Lock()
	offers := maps.Clone(n.offers)
	if offers == nil {
		offers = map[string]int{}
	}
	offers[what] = much
	n.offers = offers
	n.mu.Unlock()
	n.wakeLoops()
}

// offered are the offers as they are now. It is called under the lock.
func (n *Node) offered() map[string]int {
	if n.working {
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
