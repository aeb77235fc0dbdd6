package sink

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams/publish"
)

// fast sends a batch with JetStream's fast ingest in the mode that ends at the first gap or refused message: what is
// stored is a prefix. The server checks the guard of every message.
func (p *Publisher) fast(ctx context.Context, items []Item, marks []Session) (int, error) {
	id, n := p.begin(), len(items)+len(marks)
	base := p.inbox + "." + id + ".500.fail."
	var subject []string // of a marker: any that the stream takes
	buf := make([]byte, 0, len(base)+16)
	for i := range n {
		m, s := p.message(items, marks, i)
		guard(m, s)
		subject, _ = s.Guard()
		op := ".1.$FI"
		switch {
		case i == n-1:
			op = ".2.$FI" // commits
		case i == 0:
			op = ".0.$FI"
		}
		m.Reply = string(append(strconv.AppendInt(append(buf, base...), int64(i+1), 10), op...))
		if err := p.NC.PublishMsg(m); err != nil {
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		}
	}
	return p.await(ctx, flight{n, len(items), func() error { // an end that is not a message
		return p.NC.PublishMsg(&nats.Msg{Subject: subject[0], Reply: base + strconv.Itoa(n) + ".3.$FI"})
	}}, marks)
}

// flight is a fast batch under way.
type flight struct {
	n, rows int // messages, and how many of them are rows: the first
	end     func() error
}

// await waits for the end of a fast batch.
func (p *Publisher) await(ctx context.Context, f flight, marks []Session) (int, error) {
	var refused error
	at, ending := 0, false
	for {
		m, err := p.next(ctx)
		if err != nil {
			return 0, err
		}
		var e ended
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return 0, fmt.Errorf("%w: unreadable answer: %w", ErrUnknown, err)
		}
		switch {
		case e.Type == "err" && e.Error != nil:
			refused, at = e.refusal(), int(e.Seq)
			continue
		case e.Type != "":
			continue // flow control, or a gap: the end will tell how far it came
		case e.Error != nil && ending: // a store that is full refuses the end, too, and one that came back does not know the batch
			return 0, fmt.Errorf("%w: %w, and the end of the batch was refused: %w", ErrUnknown, refused, e.refusal())
		case e.Error != nil:
			refused, at = e.refusal(), ordinal(m.Subject)
			if at > 1 && at < f.n {
				continue // the next message ends the batch at the gap
			}
			if at > 1 { // refused before it could end the batch
				if err := f.end(); err != nil {
					return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
				}
				ending = true
				continue
			}
		case e.Count == f.n:
			advance(marks, e.Seq)
			return f.rows, nil
		}
		stored := min(e.Count, f.rows)
		switch {
		case refused == nil:
			return stored, fmt.Errorf("%w: the batch ended after %d of %d messages", ErrUnknown, e.Count, f.n)
		case publish.Permanent(refused) && at == e.Count+1 && at <= f.rows:
			return stored, &RefusedError{at - 1, refused}
		}
		return stored, outcome(refused)
	}
}

// ordinal is the number of the message that a reply of a fast batch is for: <inbox>.<batch>.<flow>.<gap>.<n>.<op>.$FI.
func ordinal(reply string) int {
	tokens := strings.Split(reply, ".")
	n, err := strconv.Atoi(tokens[max(len(tokens)-3, 0)])
	if err != nil {
		return 1
	}
	return n
}
