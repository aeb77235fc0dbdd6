package consumer

import (
	"maps"

	"github.com/nats-io/nats-server/v2/server"
)

// saved is the state of a consumer as its store has it.
type saved struct {
	delivered, floor pair
	pending          map[uint64]pending
	tries            map[uint64]uint64
}

// pair is a sequence of the consumer and the one of the stream.
type pair struct{ consumer, stream uint64 }

// stores are the states that a delivery, an ack or a reset changes: that of the leader, and what its replicas have.
func (o *Consumer) stores() []*saved {
	if o.s.Replicated() {
		return []*saved{&o.saved, &o.agreed}
	}
	return []*saved{&o.saved}
}

func (v saved) clone() saved {
	v.pending, v.tries = maps.Clone(v.pending), maps.Clone(v.tries)
	return v
}

// update takes over what the leader has, if that makes sense and is not older.
func (v *saved) update(o *Consumer) {
	delivered, floor := pair{o.dnext - 1, o.next - 1}, pair{o.dfloor, o.floor}
	if floor.consumer > delivered.consumer || floor.stream > delivered.stream || delivered.consumer < v.delivered.consumer || floor.stream < v.floor.stream {
		return
	}
	for seq := range o.pending {
		if seq <= floor.stream || seq > delivered.stream {
			return
		}
	}
	v.delivered, v.floor = delivered, floor
	v.tries = maps.Clone(o.tries)
	v.pending = map[uint64]pending{}
	for seq, p := range o.pending {
		v.pending[seq] = *p
	}
}

// saveDelivered notes a delivery, or that the wait of one begins anew.
func (o *Consumer) saveDelivered(dseq, seq, tries uint64, ts int64) {
	o.lastAt = o.e.Now()
	for _, v := range o.stores() {
		v.delivery(o, dseq, seq, tries, ts)
	}
}

func (v *saved) delivery(o *Consumer, dseq, seq, tries uint64, ts int64) {
	if tries != 1 && o.cfg.AckPolicy == server.AckNone || dseq <= v.floor.consumer {
		return
	}
	if o.cfg.AckPolicy == server.AckNone {
		v.delivered.consumer = max(v.delivered.consumer, dseq)
		v.delivered.stream = max(v.delivered.stream, seq)
		v.floor = v.delivered
		return
	}
	if v.pending == nil {
		v.pending = map[uint64]pending{}
	}
	if seq > v.delivered.stream {
		v.pending[seq] = pending{dseq, ts}
	} else if p, ok := v.pending[seq]; ok {
		v.pending[seq] = pending{p.dseq, ts}
	}
	v.delivered.consumer = max(v.delivered.consumer, dseq)
	v.delivered.stream = max(v.delivered.stream, seq)
	if tries > 1 {
		if most := o.cfg.MaxDeliver; most > 0 && tries > uint64(most) {
			delete(v.pending, seq)
		}
		if v.tries == nil {
			v.tries = map[uint64]uint64{}
		}
		v.tries[seq] = max(v.tries[seq], tries-1)
	}
}

// skip tells replicas, where there are any, that nothing up to here is for the consumer.
func (o *Consumer) skip(seq uint64) {
	for _, v := range o.stores() {
		if o.s.Replicated() {
			v.delivered.stream = max(v.delivered.stream, seq)
		}
	}
}

// saveAck notes an ack.
func (o *Consumer) saveAck(dseq, seq uint64) {
	o.ackedAt = o.e.Now()
	for _, v := range o.stores() {
		v.ack(o, dseq, seq)
	}
}

func (v *saved) ack(o *Consumer, dseq, seq uint64) {
	if o.cfg.AckPolicy == server.AckNone {
		return
	}
	delete(v.tries, seq)
	p, ok := v.pending[seq]
	if dseq <= v.floor.consumer || !ok {
		return
	}
	if o.cfg.AckPolicy != server.AckExplicit {
		v.floor = pair{dseq, seq}
		for at := range v.pending {
			if at <= seq {
				delete(v.pending, at)
				delete(v.tries, at)
			}
		}
		return
	}
	delete(v.pending, seq)
	if p.dseq > 0 {
		dseq = min(dseq, p.dseq)
	}
	if len(v.pending) == 0 {
		v.floor = v.delivered
		return
	}
	if dseq != v.floor.consumer+1 {
		return
	}
	v.floor = pair{dseq, seq}
	for at := seq + 1; v.delivered.consumer > dseq && at <= v.delivered.stream; at++ {
		if p, ok := v.pending[at]; ok {
			if p.dseq > 0 {
				v.floor = pair{p.dseq - 1, at - 1}
			}
			return
		}
	}
}

// Restore begins with what is saved, as after a restart or a change of the leader.
func (o *Consumer) Restore() {
	v := o.saved
	o.next, o.dnext, o.floor, o.dfloor = v.delivered.stream+1, v.delivered.consumer+1, v.floor.stream, v.floor.consumer
	o.pending, o.tries, o.again = map[uint64]*pending{}, maps.Clone(v.tries), nil
	if o.tries == nil {
		o.tries = map[uint64]uint64{}
	}
	for seq, p := range v.pending {
		o.pending[seq] = &pending{p.dseq, p.ts}
	}
	o.waiting, o.flow = nil, flowState{}
	if o.hears = o.filters; len(o.hears) == 0 {
		o.hears = []string{">"}
	}
	o.Recount()
	if len(o.pending) > 0 {
		o.checkPending()
	}
}

// cut makes what is saved agree with a stream that has lost its end.
func (v *saved) cut(last uint64) {
	if v.delivered.stream <= last {
		return
	}
	for seq := range v.pending {
		if seq > last {
			delete(v.pending, seq)
		}
	}
	for seq := range v.tries {
		if seq > last {
			delete(v.tries, seq)
		}
	}
	v.delivered.stream = last
	v.floor.stream = min(v.floor.stream, last)
}

// Lead begins with what is saved, on another member of the cluster. What the leader before has saved by itself, after a purge, it lacks, and which
// messages are the last of their subjects it does not look for again. Who listens still does.
func (o *Consumer) Lead() {
	o.saved, o.last = o.agreed.clone(), nil
	o.Restore()
	o.Interested()
	o.Run()
}

// unwritten takes back the last acknowledgements: the server writes them every 100 ms at most, and syncs them later.
func (v *saved) unwritten(acks uint64) {
	acks = min(acks, v.floor.consumer, v.floor.stream)
	if acks == 0 {
		return
	}
	v.floor = pair{v.floor.consumer - acks, v.floor.stream - acks}
	v.delivered = v.floor
	clear(v.pending)
	clear(v.tries)
}

// Restart begins with what is saved, but for so many acknowledgements, on a stream whose last message is another one perhaps. Nobody listens or waits.
func (o *Consumer) Restart(last, unwritten uint64) {
	for _, v := range o.stores() {
		v.cut(last)
		v.unwritten(unwritten)
	}
	o.Restore()
	o.active, o.idle = false, 0
	if o.patience > 0 {
		o.idle = o.now() + int64(o.patience)
	}
}
