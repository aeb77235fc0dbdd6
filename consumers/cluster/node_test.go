package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{1,12}`), 1, 12, rapid.ID[string])
	t.Run("ANodeThatComesTakesOnlyWhatIsItsOwn", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			nodes := names.Draw(t, "nodes")
			joins, rest := nodes[0], nodes[1:]
			for p := range streams.Partitions {
				before, after := rendezvous(p, rest), rendezvous(p, nodes)
				if after != joins && after != before {
					t.Fatalf("partition %d moves from %s to %s when %s joins", p, before, after, joins)
				}
			}
		})
	})
	t.Run("TheOrderOfNamesDoesNotMatter", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			nodes := names.Draw(t, "nodes")
			other := rapid.Permutation(nodes).Draw(t, "other")
			for p := range streams.Partitions {
				if a, b := rendezvous(p, nodes), rendezvous(p, other); a != b || !slices.Contains(nodes, a) {
					t.Fatalf("partition %d belongs to %s and to %s", p, a, b)
				}
			}
		})
	})
	t.Run("NobodyHasFarMoreThanItsShare", func(t *testing.T) {
		t.Parallel()
		shares, many := map[string]int{}, 0
		for set := range 200 {
			nodes := []string{fmt.Sprintf("node-%d", 3*set), fmt.Sprintf("node-%d", 3*set+1), fmt.Sprintf("node-%d", 3*set+2)}
			clear(shares)
			for p := range streams.Partitions {
				shares[rendezvous(p, nodes)]++
			}
			for _, name := range nodes {
				require.LessOrEqual(t, shares[name], 24, "%v", shares)
				if shares[name] > 16 {
					many++
				}
			}
		}
		require.Less(t, many, 60, "of 600")
	})
	t.Run("WithoutNodesThereIsNobody", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, rendezvous(1, nil))
	})
}

// member is a node on a connection of its own, as another process would be.
type member struct {
	*Node
	nc   *nats.Conn
	stop context.CancelFunc
	ends chan error
}

// start starts a node. Everything that it opened is closed when the test ends.
func (w *world) start(name string, change ...func(*Node)) *member {
	w.T.Helper()
	d := w.Apart(name)
	m := &member{nc: d.NC, ends: make(chan error, 1)}
	m.Node = &Node{JS: d.JS, Appender: d.Appender, Name: name, Life: 2 * time.Second, Log: w.Log.With("at", name)}
	for _, f := range change {
		f(m.Node)
	}
	ctx, cancel := context.WithCancel(w.Ctx)
	m.stop = cancel
	w.Running.Go(func() {
		m.ends <- m.Run(ctx, func(ctx context.Context, leave <-chan struct{}, _ int) {
			select {
			case <-leave:
			case <-ctx.Done():
			}
		})
	})
	return m
}

// die is kill -9 as far as others can tell: nothing is given back, and no more is said.
func (m *member) die() { m.nc.Close() }

func (m *member) owns() Set {
	s, _ := m.Owned()
	return s
}

// shared waits until each partition has exactly one owner among the nodes and each node owns some.
func (w *world) shared(nodes ...*member) {
	w.T.Helper()
	w.Eventually("each partition has one owner", func() bool {
		var counts []int
		var all Set
		total := 0
		for _, m := range nodes {
			s := m.owns()
			all |= s
			n := 0
			for p := range streams.Partitions {
				if s.Has(p) {
					n++
				}
			}
			counts = append(counts, n)
			total += n
		}
		return all == All && total == streams.Partitions && slices.Min(counts) > 0
	})
}

func TestOneNodeTakesEverythingAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	began := time.Now()
	one := w.start("one")
	w.shared(one)
	t.Logf("the first node has everything after %s", time.Since(began))
	w.Eventually("it stands", func() bool {
		s := one.Status()
		return s == Status{Member: true, State: NodeLive, Owned: 32, Due: 32, Nodes: 1}
	})
	one.stop()
	require.NoError(t, <-one.ends)
	require.Zero(t, one.owns())
	m, err := streams.Last(w.Ctx, w.NC, "KV_owners", "$KV.owners.partition.07")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(m.Data), `{"node":""`), "it is given back: %s", m.Data)
}

func TestANodeThatCannotRenewStopsBeforeOthersBegin(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one, two := w.start("one"), w.start("two")
	w.shared(one, two)
	one.die()
	for { // at no moment do both own a partition
		mine, theirs := one.owns(), two.owns() // in this order: what one gives up, the other may have a moment later
		require.Zero(t, mine&theirs)
		if theirs == All {
			break
		}
		require.NoError(t, w.Ctx.Err())
	}
	require.Zero(t, one.owns())
	require.False(t, one.Status().Member)
	one.stop()
}

func TestCordonAndDrain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	calm := func(n *Node) { n.Life = time.Minute } // nobody dies here, also not on a machine that stands still for seconds
	one, two := w.start("one", calm), w.start("two", calm)
	w.Eventually("the second has taken its whole share", func() bool {
		for p := range streams.Partitions {
			if owner := rendezvous(p, []string{"one", "two"}); one.owns().Has(p) != (owner == "one") || two.owns().Has(p) != (owner == "two") {
				return false
			}
		}
		return true
	})
	had := one.owns()
	require.ErrorIs(t, two.SetDesired(w.Ctx, "ghost", NodeCordoned), ErrNoNode)

	require.NoError(t, two.SetDesired(w.Ctx, "one", NodeCordoned))
	w.Eventually("it is cordoned", func() bool { return state(two, "one") == NodeCordoned })
	require.Equal(t, had, one.owns(), "it keeps what it has")
	two.stop()
	require.NoError(t, <-two.ends)
	three := w.start("three", calm)
	w.shared(one, three)
	require.Equal(t, had, one.owns(), "it takes nothing, and nothing is taken from it")

	require.NoError(t, three.SetDesired(w.Ctx, "one", NodeDraining))
	w.shared(three)
	require.Zero(t, one.owns())
	require.Equal(t, NodeDraining, state(three, "one"))
	one.stop()
	require.NoError(t, <-one.ends)

	one = w.start("one", calm) // an operator's wish outlives the process
	w.Eventually("it lives", func() bool { return state(three, "one") == NodeDraining })
	w.Eventually("it has read of itself what it is asked about", func() bool { return state(one, "one") == NodeDraining })
	require.Zero(t, one.owns())
	require.NoError(t, one.SetDesired(w.Ctx, "one", NodeLive))
	w.shared(one, three)
}

// What an operator wants of a node that is away is taken back also by one that has just begun, and has read nothing of it yet.
func TestWhatIsWantedOfANodeThatIsAwayIsTakenBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.start("one")
	w.Eventually("it is there", func() bool { return one.SetDesired(w.Ctx, "one", NodeDraining) == nil })
	one.stop()
	require.NoError(t, <-one.ends)
	d := w.Apart("new")
	begins := &Node{JS: d.JS, Appender: d.Appender, Name: "new"}
	require.NoError(t, begins.SetDesired(w.Ctx, "one", NodeLive))
	require.ErrorIs(t, begins.SetDesired(w.Ctx, "one", NodeLive), ErrNoNode, "nothing is wanted of it any more")
}

// A renewal that was under way when the node stopped has made a revision of the key that the node does not know.
func TestANodeThatStopsIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	calm := func(n *Node) { n.Life = time.Hour }
	w.start("other", calm)
	for range 20 {
		one := w.start("one", calm)
		w.Eventually("it runs", func() bool { return one.owns() != 0 })
		signal(one.renewNow)
		one.stop()
		require.NoError(t, <-one.ends)
	}
}

func state(m *member, name string) NodeState {
	for _, n := range m.Nodes() {
		if n.Name == name {
			return n.State
		}
	}
	return ""
}

func TestLeaveGivesEverythingBackAndStays(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one, two := w.start("one"), w.start("two")
	w.shared(one, two)
	began := time.Now()
	require.NoError(t, one.Leave(w.Ctx))
	require.Zero(t, one.owns())
	w.shared(two)
	t.Logf("everything has moved after %s", time.Since(began))
	w.Eventually("it is there still", func() bool { return state(two, "one") == NodeDraining && len(two.Nodes()[1].Partitions) == 32 })
}

// The directory of a node was copied: two processes have one name.
func TestTheSecondOfOneNameRefuses(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.start("one", func(n *Node) { n.Nonce = "original" })
	one.Announce("http://somewhere")
	w.shared(one)
	copied := w.start("one", func(n *Node) { n.Before = []string{"earlier"} })
	select {
	case err := <-copied.ends:
		require.ErrorIs(t, err, ErrNameTaken)
		require.ErrorContains(t, err, "http://somewhere")
	case <-time.After(15 * time.Second):
		t.Fatal("it does not refuse")
	}
	require.Equal(t, All, one.owns())
}

func TestARestartTakesItsNameBack(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.start("one", func(n *Node) { n.Nonce, n.Life = "first", time.Hour })
	w.shared(one)
	one.die()
	again := w.start("one", func(n *Node) { n.Before = []string{"earlier", "first", "never entered"} })
	w.shared(again) // it knows that the process before it has ended, an hour before others do
	one.stop()
	again.die()
	third := w.start("one") // it does not know, and waits for the life of the key
	w.shared(third)
	again.stop()
}

// The view of a node may be of before: it asks the leader before it takes anything from somebody.
func TestNothingIsTakenFromWhoLives(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.start("one")
	w.shared(one)
	n := &Node{JS: w.JS, Appender: w.Appender, Name: "two", Log: w.Log}
	n.prepare()
	raw, revision, err := n.read(w.Ctx, keyOf(3))
	require.NoError(t, err)
	n.view.claims[3] = readClaim(raw, revision) // and it knows of no node
	require.ErrorIs(t, n.takeClaim(w.Ctx, 3), kv.ErrHeld)
	n.view.claims[3] = claim{revision: revision - 1} // nor that it was claimed
	require.ErrorIs(t, n.takeClaim(w.Ctx, 3), kv.ErrHeld)
	require.Equal(t, "one", n.view.claims[3].Node, "now it knows")
}

// Whoever has just lost a partition to another node does not take it back at once, though that one's key is not there: where the bucket has lost the keys of nodes, each would take
// the other for gone, and they would take partitions from each other without a pause until they have renewed them.
func TestWhatAnotherHasTakenIsNotTakenBackAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	one := w.start("one")
	w.shared(one)
	taken := time.Now()
	_, err := w.JS.Publish(w.Ctx, "$KV.owners."+keyOf(3), []byte(`{"node":"ghost","nonce":"ghost-1"}`))
	require.NoError(t, err)
	var again *jetstream.RawStreamMsg
	w.Eventually("it is claimed again", func() bool {
		again = w.Stream("KV_owners", "$KV.owners."+keyOf(3))[0]
		return readClaim(again.Data, again.Sequence).Node == "one"
	})
	require.GreaterOrEqual(t, again.Time.Sub(taken), pauseAfter)
}

// fallBack makes a bucket anew with what it held at the mark, as a restore or a power loss does.
func (w *world) fallBack(bucket string, mark []*jetstream.RawStreamMsg) {
	w.T.Helper()
	w.Empty("KV_" + bucket)
	for _, m := range mark {
		_, err := w.JS.PublishMsg(w.Ctx, &nats.Msg{Subject: m.Subject, Data: m.Data})
		require.NoError(w.T, err)
	}
}

// What nodes have seen of a bucket that fell back is void, though its revisions were higher.
func TestTheBucketOfOwnersFallsBack(t *testing.T) {
	t.Parallel()
	t.Run("ADeadNodesPartitionsAreTaken", func(t *testing.T) {
		t.Parallel()
		w := setup(t, embedded.Interval, consumertest.Things)
		one, two := w.start("one"), w.start("two")
		w.shared(one, two)
		mark := w.Stream("KV_owners", "$KV.owners.>")
		started := one.keyRevision()
		for range 1000 {
			_, err := w.JS.Publish(w.Ctx, "$KV.owners.want.ghost", nil)
			require.NoError(t, err)
		}
		w.Eventually("both are seen at later revisions", func() bool { return one.keyRevision() > started+1000 && two.keyRevision() > started+1000 })
		two.die()
		w.fallBack("owners", mark)
		w.shared(one)
		two.stop()
	})
	t.Run("WhoRunsAPartitionClaimsItAgain", func(t *testing.T) {
		t.Parallel()
		w := setup(t, embedded.Interval, consumertest.Things)
		one, two := w.start("one"), w.start("two")
		w.shared(one, two)
		mark := w.Stream("KV_owners", "$KV.owners.>")
		two.stop()
		require.NoError(t, <-two.ends)
		w.shared(one)
		w.fallBack("owners", mark)
		w.Eventually("every claim is its own", func() bool {
			for p := range streams.Partitions {
				raw, revision, err := one.read(w.Ctx, keyOf(p))
				if c := readClaim(raw, revision); err != nil || c.Node != "one" {
					return false
				}
			}
			return one.owns() == All
		})
	})
	t.Run("OneClaimIsGone", func(t *testing.T) { // its newest value was lost, and the one before it had been removed
		t.Parallel()
		w := setup(t, embedded.Interval, consumertest.Things)
		one := w.start("one")
		w.shared(one)
		owners, err := w.JS.Stream(w.Ctx, "KV_owners")
		require.NoError(t, err)
		require.NoError(t, owners.Purge(w.Ctx, jetstream.WithPurgeSubject("$KV.owners."+keyOf(3))))
		require.NoError(t, one.JS.Conn().ForceReconnect())
		w.Eventually("it is claimed again", func() bool {
			raw, revision, err := one.read(w.Ctx, keyOf(3))
			return err == nil && readClaim(raw, revision).Node == "one" && one.owns() == All
		})
	})
}
