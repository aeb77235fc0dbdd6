package publish

import (
	"context"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// Chain is a run of messages that must follow, without a gap, the last message under a subject filter.
type Chain struct {
	Filter string // such as all events of one entity
	Last   uint64 // sequence of the last message under Filter; 0 for none
	Place  uint64 // sequence that the next message gets, or it is refused; 0 where any will do
	Msgs   []*nats.Msg
	Single bool // one at a time in groups, too: an error is that of Msgs[Done] then

	// Done counts the messages that are known to be stored and Last is the sequence of the last of them; Duplicate says that the stream had that one before, and maybe has it no
	// longer. Err is why the next one is not; ErrConflict means that Last was not the last.
	Done      int
	Duplicate bool
	Err       error
	New       int // of Done, those that the stream had not had before: each has a sequence of its own
}

// AppendChains writes chains that do not depend on one another: pipelined, first all first messages, then all second
// ones; in groups, each chain as a unit of an atomic batch. Where a sync makes what was acknowledged stored, one is for all of them. The chains carry the results.
func (a *Appender) AppendChains(ctx context.Context, stream string, chains []*Chain) {
	if a.sync == nil {
		a.appendChains(ctx, stream, chains)
		return
	}
	before := make([]Chain, len(chains))
	for i, c := range chains {
		before[i] = *c
	}
	a.appendChains(ctx, stream, chains)
	var stored []int
	for i, c := range chains {
		if c.Done > before[i].Done {
			stored = append(stored, i)
		}
	}
	if len(stored) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.wait)
	defer cancel()
	if err := a.Sync(ctx, stream); err != nil {
		for _, i := range stored {
			c := before[i]
			c.Err = err
			*chains[i] = c
		}
	}
}

func (a *Appender) appendChains(ctx context.Context, stream string, chains []*Chain) {
	for {
		var open []*Chain
		for _, c := range chains {
			if c.Err == nil && c.Done < len(c.Msgs) {
				open = append(open, c)
			}
		}
		if len(open) == 0 {
			return
		}
		results := make([]Result, len(open))
		a.gather(ctx, len(open), results, func(i int, done func(Result)) { a.link(stream, open[i], done) })
		for i, c := range open {
			c.Err = results[i].Err
			if c.Err != nil {
				continue
			}
			c.Last, c.Duplicate = max(c.Last, results[i].Seq), results[i].Duplicate // a duplicate has the sequence of then
			more := 1
			if a.group && !c.Single {
				more = len(c.Msgs) - c.Done
			}
			c.Done += more
			c.New += more - results[i].earlier
			if c.Duplicate {
				c.New--
			}
			if c.Place > 0 {
				c.Place = c.Last + 1
			}
		}
	}
}

// headerExpectLast refuses a message that does not get the next sequence. In an atomic batch only the first one can have it.
const headerExpectLast = "Nats-Expected-Last-Sequence"

func expectAt(m *nats.Msg, sequence uint64) {
	m.Header[headerExpectLast] = []string{strconv.FormatUint(sequence-1, 10)}
}

// link sends what comes next of a chain.
func (a *Appender) link(stream string, c *Chain, done func(Result)) {
	next := c.Msgs[c.Done]
	streams.ExpectUnder(next, c.Filter, c.Last)
	if c.Place > 0 {
		expectAt(next, c.Place)
	}
	if a.group {
		for _, m := range c.Msgs[c.Done+1:] { // of an earlier try
			streams.Unexpect(m)
			delete(m.Header, headerExpectLast)
		}
		to := len(c.Msgs)
		if c.Single {
			to = c.Done + 1
		}
		a.grouping(stream).add(unit{c.Msgs[c.Done:to], done})
		return
	}
	a.send(stream, next, pending{done: done, linked: true})
}
