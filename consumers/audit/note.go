package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

// noteTries is how often a record is tried, as another node may append at the same time.
const noteTries = 8

// Note appends a record of what no event of a session tells, to the chain of its class. One that has the id of the session's last record in that class was appended already. Chains are those of the recorders of this
// process.
func Note(ctx context.Context, d consumers.Deps, c *Chains, rec audit.Record) (err error) {
	r := &Recorder{Deps: d.WithDefaults(), Chains: c}
	for try := range noteTries {
		if err = r.note(ctx, rec); err == nil || !wait.Backoff(ctx, try) {
			return err
		}
	}
	return err
}

func (r *Recorder) note(ctx context.Context, rec audit.Record) (err error) {
	r.Chains.mu.Lock()
	defer r.Chains.mu.Unlock()
	defer func() {
		if err != nil { // what is known of the chains may be old
			r.Chains.heads = nil
		}
	}()
	r.last = map[string]place{}
	subject := r.Names.Audit(rec.Class, rec.Target.Machine, rec.Target.SessionID)
	chain, err := r.chain(ctx, rec.Class)
	if err != nil {
		return err
	}
	last, err := r.recorded(ctx, rec.Class, subject)
	if err != nil || last.id == rec.EventID {
		return err
	}
	text, head, err := chain.head.Seal(rec, time.Now())
	if err != nil {
		return fmt.Errorf("cannot write the record %s: %w", rec.EventID, err)
	}
	chain.head = head
	chain.msgs = append(chain.msgs, &nats.Msg{Subject: subject, Data: text, Header: nats.Header{streams.HeaderID: {head.Hash}, headerEvent: {last.String()}}}) // the events that have records are the same
	_, err = r.append(ctx)
	return err
}
