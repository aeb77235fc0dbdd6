package consumer

// Delivery. run gives out what there is, to the pulls that wait or to whoever listens, until something is missing: a message, a pull, or room for
// messages that are not acked. Pulls are answered in turn; serveWaiting ends those that have waited long enough.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// pull is a request for messages.
type pull struct {
	reply       string
	n, given    int // messages that it still wants, and that it got
	bytes       int // that it still takes; 0 is any
	expires     int64
	every, beat int64 // of heartbeats, and the next one
	noWait      bool
}

type nextRequest struct {
	Expires   time.Duration `json:"expires"`
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	NoWait    bool          `json:"no_wait"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

func (o *Consumer) status(reply, line string) {
	o.e.Send(store.Message{To: reply, Header: []byte(store.HeaderLine[:len(store.HeaderLine)-2] + " " + line + "\r\n\r\n")})
}

// parsePull reads a request: nothing, a number or JSON.
func (o *Consumer) parsePull(body []byte) (*pull, error) {
	text := strings.TrimSpace(string(body))
	p := &pull{n: 1}
	switch {
	case text == "":
	case text[0] == '{':
		var r nextRequest
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, err
		}
		if r.Heartbeat > 0 && r.Heartbeat*2 > r.Expires {
			return nil, errors.New("heartbeat value too large")
		}
		p.n, p.bytes, p.noWait = r.Batch, r.MaxBytes, r.NoWait
		if r.Expires != 0 {
			p.expires = o.now() + int64(r.Expires)
		}
		if r.Heartbeat > 0 {
			p.every, p.beat = int64(r.Heartbeat), o.now()+int64(r.Heartbeat)
		}
	default:
		if n, err := strconv.Atoi(text); err == nil {
			p.n = n
		}
	}
	return p, nil
}

// Pull takes a pull.
func (o *Consumer) Pull(reply string, body []byte) {
	if reply == "" {
		return
	}
	if !o.pull() {
		o.status(reply, "409 Consumer is push based")
		return
	}
	p, err := o.parsePull(body)
	if err != nil {
		o.status(reply, "400 Bad Request - "+err.Error())
		return
	}
	switch c := &o.cfg; {
	case c.MaxRequestBatch > 0 && p.n > c.MaxRequestBatch:
		o.status(reply, fmt.Sprintf("409 Exceeded MaxRequestBatch of %d", c.MaxRequestBatch))
		return
	case p.expires > 0 && c.MaxRequestExpires > 0 && p.expires > o.now()+int64(c.MaxRequestExpires):
		o.status(reply, fmt.Sprintf("409 Exceeded MaxRequestExpires of %v", c.MaxRequestExpires))
		return
	case p.bytes > 0 && c.MaxRequestMaxBytes > 0 && p.bytes > c.MaxRequestMaxBytes:
		o.status(reply, fmt.Sprintf("409 Exceeded MaxRequestMaxBytes of %v", c.MaxRequestMaxBytes))
		return
	}
	if len(o.waiting) >= o.cfg.MaxWaiting {
		o.serveWaiting(false)
	}
	if p.noWait && !o.mayWait(reply, p) {
		return
	}
	p.reply = reply
	if len(o.waiting) >= o.cfg.MaxWaiting {
		if p.every == 0 {
			o.status(reply, "409 Exceeded MaxWaiting")
		}
		return
	}
	o.waiting = append(o.waiting, p)
	o.seen = o.e.Now()
	o.Run()
}

// mayWait ends a pull that does not wait, where there is nothing for it.
func (o *Consumer) mayWait(reply string, p *pull) bool {
	there := o.numLeft() + uint64(len(o.again))
	if there == 0 && p.expires == 0 {
		o.seen = o.e.Now()
		o.status(reply, "404 No Messages")
		return false
	}
	if there > 0 && there < uint64(o.serveWaiting(false)) {
		o.seen = o.e.Now()
		o.status(reply, "408 Requests Pending")
		return false
	}
	return true
}

func (o *Consumer) endPull(p *pull, line string) {
	o.e.Send(store.Message{To: p.reply, Header: fmt.Appendf(nil, "NATS/1.0 %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n", line, p.n, p.bytes)})
}

// serveWaiting ends pulls that have expired or lost their client, and at the end of the stream those that do not wait; it sends heartbeats. It is how
// many messages the others still want.
func (o *Consumer) serveWaiting(end bool) (want int) {
	now := o.now()
	o.waiting = slices.DeleteFunc(o.waiting, func(p *pull) bool {
		expired := p.expires > 0 && now > p.expires
		switch {
		case expired:
			o.endPull(p, "408 Request Timeout")
			if at := time.Unix(0, p.expires); at.After(o.seen) {
				o.seen = at
			}
			return true
		case end && p.noWait && (p.expires == 0 || p.given > 0):
			o.status(p.reply, "404 No Messages")
			o.seen = o.e.Now()
			return true
		case !o.e.Interest(p.reply):
			return true
		}
		want += p.n
		if p.beat > 0 && now > p.beat {
			o.heartbeat(p.reply)
			p.beat = now + p.every
		}
		return false
	})
	return want
}

func (o *Consumer) heartbeat(to string) {
	h := fmt.Appendf(nil, "NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n", o.dnext-1, o.next-1)
	if o.flow.id != "" {
		h = fmt.Appendf(h, "Nats-Consumer-Stalled: %s\r\n", o.flow.id)
	}
	o.e.Send(store.Message{To: to, Header: append(h, store.CRLF...)})
}

// RunSignaled is [Consumer.Run], if there may be something that there was not before. An ack alone is no reason, nor is a purge: where a consumer had as much pending
// as it may, only an ack of its own goes on.
func (o *Consumer) RunSignaled() {
	if o.signaled {
		o.signaled = false
		o.Run()
	}
}

// Run delivers what it can.
func (o *Consumer) Run() {
	full := false
	for o.may() {
		e, tries, stop := o.take()
		if e == nil {
			full = stop
			break
		}
		if tries == 1 {
			o.left--
		}
		if !o.deliver(e, tries) {
			o.untake(e, tries)
			break
		}
	}
	if o.pull() && len(o.waiting) > 0 && !o.gone {
		o.serveWaiting(!full)
	}
}

// may reports whether there is anybody to deliver to.
func (o *Consumer) may() bool {
	if o.gone || o.s.Silent() || o.cfg.PauseUntil != nil && o.e.Now().Before(*o.cfg.PauseUntil) {
		return false
	}
	if o.pull() {
		return len(o.waiting) > 0
	}
	return o.active && (o.flow.window == 0 || o.flow.sent <= o.flow.window)
}

// take is the next message, and which delivery of it this is; nil where there is none, or no room for one more (full).
func (o *Consumer) take() (e *store.Entry, tries uint64, full bool) {
	for len(o.again) > 0 {
		seq := o.again[0]
		o.again = o.again[1:]
		o.tries[seq]++
		tries = o.tries[seq] + 1
		if most := o.cfg.MaxDeliver; most > 0 && tries > uint64(most) {
			o.exceeded(seq, tries-1)
			if p := o.pending[seq]; p != nil {
				delete(o.pending, seq)
				o.saveDelivered(p.dseq, seq, tries, p.ts)
				o.moveFloor(p.dseq, seq)
			}
			continue
		}
		if e = o.s.Log().At(seq); e != nil {
			return e, tries, false
		}
		o.untry(seq)
		if p := o.pending[seq]; p != nil {
			o.terminate(seq, p.dseq, tries-1, reasonRemoved, "")
		}
	}
	if o.cfg.MaxAckPending > 0 && len(o.pending) >= o.cfg.MaxAckPending {
		return nil, 0, true
	}
	if len(o.last) > 0 {
		return o.takeLast(), 1, false
	}
	if e = o.s.Log().NextUnder(o.filters, o.next); e == nil {
		if last := o.s.Log().Last; last >= o.next {
			if last > o.next { // by one, it is taken for a message
				o.skip(last)
			}
			o.next = last + 1
		}
		o.left = 0
		return nil, 0, false
	}
	o.next = e.Seq + 1
	return e, 1, false
}

func (o *Consumer) takeLast() *store.Entry {
	seq := o.last[0]
	if o.last = o.last[1:]; len(o.last) == 0 {
		o.next = o.resume
		o.skip(o.next - 1)
	} else {
		o.next = seq
	}
	o.next++
	return o.s.Log().At(seq) // one that is gone ends the round
}

// untake gives a message back that nobody took.
func (o *Consumer) untake(e *store.Entry, tries uint64) {
	switch {
	case tries == 1 && e.Seq == o.next-1:
		o.next--
		o.left++
	case !slices.Contains(o.again, e.Seq):
		o.untry(e.Seq)
		o.again = append(o.again, e.Seq)
	}
}

func (o *Consumer) untry(seq uint64) {
	if o.tries[seq] > 1 {
		o.tries[seq]--
	} else {
		delete(o.tries, seq)
	}
}

// deliver sends a message to the next pull, or to whoever listens. It is false where nobody takes it.
func (o *Consumer) deliver(e *store.Entry, tries uint64) bool {
	reply := o.ackSubject(e, tries)
	header, data := e.Header, e.Data
	if o.cfg.HeadersOnly {
		header, data = store.With(header, "Nats-Msg-Size", strconv.Itoa(len(data))), nil
	}
	size := len(e.Subject) + len(reply) + len(header) + len(data)
	to, rest := o.cfg.DeliverSubject, (*pull)(nil)
	if o.pull() {
		p := o.nextPull(size)
		if p == nil {
			return false
		}
		to = p.reply
		if p.n <= 0 && p.bytes > 0 {
			rest = p
		} else if p.n > 0 && p.every > 0 {
			p.beat = o.now() + p.every
		}
	}
	dseq := o.dnext
	o.dnext++
	o.saveDelivered(dseq, e.Seq, tries, e.TS)
	if o.cfg.AckPolicy == server.AckNone {
		o.dfloor, o.floor = dseq, e.Seq
	} else {
		o.track(e.Seq, dseq)
	}
	o.e.Deliver(store.Message{To: to, Subject: e.Subject, Reply: reply, Header: header, Data: data})
	if o.flow.window > 0 {
		o.sentBytes(size + len(to))
	}
	if o.pull() {
		o.seen = o.e.Now()
	} else if o.beat > 0 {
		o.beat = o.now() + int64(o.cfg.Heartbeat)
	}
	if rest != nil {
		o.endPull(rest, "409 Batch Completed")
	}
	if o.cfg.AckPolicy == server.AckNone && o.s.Config().Retention != server.LimitsPolicy {
		o.s.Done(e.Seq)
	}
	return true
}

func (o *Consumer) ackSubject(e *store.Entry, tries uint64) string {
	b := make([]byte, 0, len(o.prefix)+80)
	b = append(b, o.prefix...)
	b = append(strconv.AppendUint(b, tries, 10), '.')
	b = append(strconv.AppendUint(b, e.Seq, 10), '.')
	b = append(strconv.AppendUint(b, o.dnext, 10), '.')
	b = append(strconv.AppendInt(b, e.TS, 10), '.')
	return string(strconv.AppendUint(b, o.numLeft(), 10))
}

// nextPull is the pull that gets a message of a size.
func (o *Consumer) nextPull(size int) *pull {
	now := o.now()
	for len(o.waiting) > 0 {
		p := o.waiting[0]
		if p.expires > 0 && now >= p.expires {
			o.endPull(p, "408 Request Timeout")
			o.waiting = o.waiting[1:]
			continue
		}
		if p.bytes > 0 {
			if size > p.bytes {
				o.endPull(p, "409 Message Size Exceeds MaxBytes")
				o.waiting = o.waiting[1:]
				continue
			}
			if p.bytes -= size; p.bytes == 0 {
				p.n = 1
			}
		}
		if !o.e.Interest(p.reply) {
			o.waiting = o.waiting[1:]
			continue
		}
		p.given++
		p.n--
		if p.n <= 0 {
			o.waiting = o.waiting[1:]
		} else if len(o.waiting) > 1 {
			o.waiting = append(o.waiting[1:], p)
		}
		return p
	}
	return nil
}
