package consumer

// Acks of deliveries: +ACK, -NAK with or without a delay, +WPI, +TERM with or without a reason, +NXT; and what happens without one (checkPending). What
// is acked goes from a work queue.

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// ackDelay is by how much the server looks at the pending later than the wait says.
const ackDelay = int64(time.Millisecond)

func (o *Consumer) Acked(seq, dseq, tries uint64, m store.Message) {
	defer o.RunSignaled()
	answer := seq != 0
	body := m.Data
	switch {
	case len(body) == 0, bytes.Equal(body, []byte("+ACK")), bytes.Equal(body, []byte("+OK")):
		answer = o.ackOne(seq, dseq, m.Reply) && answer
	case bytes.HasPrefix(body, []byte("+NXT")):
		o.ackOne(seq, dseq, "")
		o.Pull(m.Reply, body[len("+NXT"):])
		return
	case bytes.HasPrefix(body, []byte("-NAK")):
		o.nak(seq, dseq, tries, bytes.TrimSpace(body[len("-NAK"):]))
	case bytes.Equal(body, []byte("+WPI")):
		if p := o.pending[seq]; p != nil {
			p.ts = o.now()
			o.saveDelivered(p.dseq, seq, 1, p.ts)
		}
	case bytes.HasPrefix(body, []byte("+TERM")):
		answer = o.terminate(seq, dseq, tries, string(bytes.TrimSpace(body[len("+TERM"):])), m.Reply) && answer
	}
	if answer {
		o.e.Reply(m.Reply, nil)
	}
}

// ackOne takes an ack. It reports whether the caller is to answer it; else it is answered already, or never.
func (o *Consumer) ackOne(seq, dseq uint64, reply string) bool {
	if seq >= o.next && !o.cfg.FlowControl {
		return false
	}
	inPlace := o.s.Config().Retention != server.LimitsPolicy && !o.s.Replicated()
	var also []uint64
	switch o.cfg.AckPolicy {
	case server.AckNone:
		return inPlace
	case server.AckExplicit:
		if p := o.pending[seq]; p != nil {
			o.signaled = o.signaled || o.crowded()
			delete(o.pending, seq)
			dseq = p.dseq
			o.moveFloor(dseq, seq)
		}
		delete(o.tries, seq)
		o.unqueue(seq)
	default:
		if dseq <= o.dfloor || seq <= o.floor {
			return true
		}
		o.signaled = o.signaled || o.crowded()
		o.dfloor, o.floor = dseq, seq
		for _, at := range slices.Sorted(maps.Keys(o.pending)) {
			if at <= seq {
				if at != seq {
					also = append(also, at)
				}
				delete(o.pending, at)
				delete(o.tries, at)
				o.unqueue(at)
			}
		}
		delete(o.tries, seq)
		o.unqueue(seq)
	}
	o.saveAck(dseq, seq)
	if !inPlace && reply != "" {
		o.e.Reply(reply, nil)
	}
	if o.s.Config().Retention != server.LimitsPolicy {
		o.s.Done(seq)
		for _, at := range also {
			o.s.Done(at)
		}
	}
	return inPlace
}

// crowded reports whether the consumer has as much pending as it may.
func (o *Consumer) crowded() bool {
	return o.cfg.MaxAckPending > 0 && len(o.pending) >= o.cfg.MaxAckPending
}

func (o *Consumer) moveFloor(dseq, seq uint64) {
	if len(o.pending) == 0 {
		o.dfloor, o.floor = o.dnext-1, o.next-1
		return
	}
	if dseq != o.dfloor+1 {
		return
	}
	o.dfloor, o.floor = dseq, seq
	for at := seq + 1; at < o.next; at++ {
		if p := o.pending[at]; p != nil {
			if p.dseq > 0 {
				o.dfloor, o.floor = p.dseq-1, at-1
			}
			return
		}
	}
}

// Needs reports whether the consumer is not done with a message.
func (o *Consumer) Needs(e *store.Entry) bool {
	if !store.MatchAny(o.filters, e.Subject) {
		return false
	}
	if _, ok := o.tries[e.Seq]; ok {
		return true
	}
	if o.cfg.AckPolicy == server.AckExplicit && e.Seq < o.next {
		return e.Seq > o.floor && o.pending[e.Seq] != nil
	}
	return e.Seq > o.floor
}

// reasonRemoved is why a message ends that was removed while it was not acked.
const reasonRemoved = "Unacknowledged message was deleted"

// terminate ends a message without success.
func (o *Consumer) terminate(seq, dseq, tries uint64, reason, reply string) bool {
	answer := o.ackOne(seq, dseq, reply)
	o.e.Advise("CONSUMER.MSG_TERMINATED."+o.s.Config().Name+"."+o.name, &server.JSConsumerDeliveryTerminatedAdvisory{
		TypedEvent: o.e.Event(server.JSConsumerDeliveryTerminatedAdvisoryType), Stream: o.s.Config().Name, Consumer: o.name,
		ConsumerSeq: dseq, StreamSeq: seq, Deliveries: tries, Reason: reason,
	})
	return answer
}

// nak asks for another delivery, at once or after a delay.
func (o *Consumer) nak(seq, dseq, tries uint64, arg []byte) {
	p := o.pending[seq]
	if dseq <= o.dfloor || dseq > o.dnext || p == nil {
		return
	}
	o.e.Advise("CONSUMER.MSG_NAKED."+o.s.Config().Name+"."+o.name, &server.JSConsumerDeliveryNakAdvisory{
		TypedEvent: o.e.Event(server.JSConsumerDeliveryNakAdvisoryType), Stream: o.s.Config().Name, Consumer: o.name,
		ConsumerSeq: dseq, StreamSeq: seq, Deliveries: tries,
	})
	if len(arg) > 0 {
		if d, ok := nakDelay(arg); ok {
			o.unqueue(seq)
			p.ts = o.now() - int64(o.cfg.AckWait) + int64(d)
			o.saveDelivered(p.dseq, seq, tries, p.ts)
			o.check = o.now() + int64(10*time.Millisecond)
			return
		}
	}
	if !slices.Contains(o.again, seq) {
		o.again = append(o.again, seq)
	}
	o.signaled = true
}

func nakDelay(arg []byte) (time.Duration, bool) {
	if arg[0] == '{' {
		var opts server.ConsumerNakOptions
		err := json.Unmarshal(arg, &opts)
		return opts.Delay, err == nil
	}
	d, err := time.ParseDuration(string(arg))
	return d, err == nil
}

// unqueue takes a message out of those that are to be delivered again.
func (o *Consumer) unqueue(seq uint64) {
	if i := slices.Index(o.again, seq); i >= 0 {
		o.again = slices.Delete(o.again, i, i+1)
	}
}

// track notes that a delivery waits for its ack.
func (o *Consumer) track(seq, dseq uint64) {
	now := o.now()
	if p := o.pending[seq]; p != nil {
		p.ts = now
	} else {
		o.pending[seq] = &pending{dseq, now}
	}
	wait := int64(o.cfg.AckWait)
	if b := o.cfg.BackOff; len(b) > 0 {
		wait = int64(b[min(int(o.tries[seq]), len(b)-1)])
	}
	if at := now + wait + ackDelay; wait > 0 && (o.check == 0 || at < o.check) {
		o.check = at
	}
}

func (o *Consumer) ackWait() time.Duration { return o.cfg.AckWait + time.Duration(ackDelay) }

// checkPending queues what has waited long enough for another delivery, and reports whether there is any.
func (o *Consumer) checkPending() bool {
	o.check = 0
	wait := int64(o.cfg.AckWait)
	if wait == 0 {
		return false
	}
	now, first := o.now(), o.s.Log().First
	next := int64(o.ackWait())
	if b := o.cfg.BackOff; len(b) > 0 {
		next = int64(b[len(b)-1])
	}
	changed := false
	var due []uint64
	for _, seq := range slices.Sorted(maps.Keys(o.pending)) {
		p := o.pending[seq]
		if seq < first || seq <= o.floor {
			delete(o.pending, seq)
			delete(o.tries, seq)
			o.unqueue(seq)
			o.floor, o.dfloor, changed = max(o.floor, seq), max(o.dfloor, p.dseq), true
			continue
		}
		deadline := wait
		if b := o.cfg.BackOff; len(b) > 0 {
			i := min(int(o.tries[seq]), len(b)-1)
			deadline = int64(b[i])
			next = min(next, int64(b[min(i+1, len(b)-1)]))
		}
		if elapsed := now - p.ts; elapsed < deadline {
			next = min(next, deadline-elapsed)
		} else if !slices.Contains(o.again, seq) && !o.spent(seq) {
			due = append(due, seq)
		}
	}
	if len(due) > 0 {
		o.again = append(o.again, due...)
		off := now - o.pending[due[0]].ts
		for _, seq := range due {
			o.pending[seq].ts += off
		}
	}
	if len(o.pending) > 0 {
		o.check = now + max(next, ackDelay)
	} else {
		o.again = nil
		o.dfloor, o.floor = o.dnext-1, o.next-1
	}
	if changed {
		o.saved.update(o)
	}
	return len(due) > 0
}

// Awaits reports whether the consumer waits for an ack that it would deliver again without.
func (o *Consumer) Awaits() bool { return len(o.pending) > 0 && o.cfg.AckWait > 0 }

// RunOut ends all waits for acks.
func (o *Consumer) RunOut() {
	for _, p := range o.pending {
		p.ts = min(p.ts, o.now()-int64(o.cfg.AckWait))
	}
	o.checkPending()
	o.Run()
}

// deliveries is how often a message was delivered.
func (o *Consumer) deliveries(seq uint64) uint64 { return max(o.tries[seq], 1) }

// spent ends a message that was delivered as often as it may be.
func (o *Consumer) spent(seq uint64) bool {
	if most := o.cfg.MaxDeliver; most <= 0 || o.deliveries(seq) < uint64(most) {
		return false
	}
	n := o.deliveries(seq)
	o.exceeded(seq, o.tries[seq]+1)
	if p := o.pending[seq]; p != nil {
		delete(o.pending, seq)
		o.saveDelivered(p.dseq, seq, n+1, p.ts)
		o.moveFloor(p.dseq, seq)
	}
	o.tries[seq] = n
	return true
}

func (o *Consumer) exceeded(seq, tries uint64) {
	o.e.Advise("CONSUMER.MAX_DELIVERIES."+o.s.Config().Name+"."+o.name, &server.JSConsumerDeliveryExceededAdvisory{
		TypedEvent: o.e.Event(server.JSConsumerDeliveryExceededAdvisoryType), Stream: o.s.Config().Name, Consumer: o.name, StreamSeq: seq, Deliveries: tries,
	})
}
