package publish

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/streams"
)

// Whatever is written, with right and wrong conditions, one by one, in batches or in chains: what the appender
// reports is what the stream holds.
func TestReportsAreTheTruth(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, g *ground, a *Appender) {
		runs := 0
		rapid.Check(t, func(r *rapid.T) {
			runs++
			m := &model{g: g, a: a, namespace: fmt.Sprintf("run-%d", runs), last: map[string]uint64{}, truth: map[uint64]string{}}
			for range rapid.IntRange(1, 6).Draw(r, "calls") {
				if rapid.Bool().Draw(r, "chains") {
					m.chains(r)
				} else {
					m.writes(r)
				}
			}
			have := map[uint64]string{}
			for _, msg := range g.Held(streams.EventStream, "instar.evt.thing."+m.namespace+".>") {
				have[msg.Sequence] = msg.Subject + " " + string(msg.Data)
			}
			require.Equal(r, m.truth, have)
		})
	})
}

// model is what the stream should hold after what was reported.
type model struct {
	g         *ground
	a         *Appender
	namespace string
	last      map[string]uint64 // by entity
	truth     map[uint64]string
	serial    int
}

func (m *model) event(id, typ string) *nats.Msg {
	m.serial++
	return &nats.Msg{Subject: streams.Names{}.Event("thing", m.namespace+"."+id, typ), Data: []byte(strconv.Itoa(m.serial)), Header: nats.Header{}}
}

func (m *model) stored(msg *nats.Msg, seq uint64) {
	m.truth[seq] = msg.Subject + " " + string(msg.Data)
}

func revision(r *rapid.T, right uint64) uint64 {
	if rapid.IntRange(0, 4).Draw(r, "stale") == 0 {
		return rapid.Uint64Range(0, right+3).Draw(r, "revision")
	}
	return right
}

func (m *model) writes(r *rapid.T) {
	n := rapid.SampledFrom([]int{1, 3, few + 2, 2 * few}).Draw(r, "n")
	var writes []Write
	var wants []uint64
	var ids []string
	for range n {
		id := fmt.Sprintf("w-%d", rapid.IntRange(0, 5*n).Draw(r, "entity"))
		msg := m.event(id, "thing.set")
		want := revision(r, m.last[id])
		streams.Expect(msg, want)
		writes, wants, ids = append(writes, Write{streams.EventStream, msg}), append(wants, want), append(ids, id)
	}
	for i, res := range m.a.Append(m.g.Ctx, writes) {
		if wants[i] != m.last[ids[i]] { // which an earlier write of this call may have moved, as they go in order
			require.ErrorIs(r, res.Err, ErrConflict, "%s expects %d", ids[i], wants[i])
			continue
		}
		require.NoError(r, res.Err, "%s expects %d", ids[i], wants[i])
		m.last[ids[i]] = res.Seq
		m.stored(writes[i].Msg, res.Seq)
	}
}

func (m *model) chains(r *rapid.T) {
	n := rapid.SampledFrom([]int{1, 4, few}).Draw(r, "n")
	var chains []*Chain
	var stale []bool
	for i := range n {
		id := fmt.Sprintf("c-%d", i)
		c := &Chain{Filter: streams.Names{}.EventsOf("thing", m.namespace+"."+id), Last: revision(r, m.last[id])}
		stale = append(stale, c.Last != m.last[id])
		for k := range rapid.IntRange(1, 4).Draw(r, "length") {
			c.Msgs = append(c.Msgs, m.event(id, fmt.Sprintf("thing.step-%d", k)))
		}
		chains = append(chains, c)
	}
	m.a.AppendChains(m.g.Ctx, streams.EventStream, chains)
	for i, c := range chains {
		if stale[i] {
			require.ErrorIs(r, c.Err, ErrConflict)
			require.Zero(r, c.Done)
			continue
		}
		require.NoError(r, c.Err)
		require.Equal(r, len(c.Msgs), c.Done)
		held := m.g.Held(streams.EventStream, c.Filter)
		held = held[len(held)-len(c.Msgs):]
		for k, msg := range held {
			require.Equal(r, string(c.Msgs[k].Data), string(msg.Data))
			m.stored(c.Msgs[k], msg.Sequence)
		}
		require.Equal(r, held[len(held)-1].Sequence, c.Last)
		m.last[fmt.Sprintf("c-%d", i)] = c.Last
	}
}
