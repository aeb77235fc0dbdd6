package engine

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/answers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// MaxOutbox bounds what one commit emits for one entity; further commands wait for the next commit. A value must stay below the stream's 1 MiB.
const MaxOutbox = 128 << 10

const DefaultBatch, DefaultCache = 256, 2048 // of [Engine]

// Whoever may publish a command chooses its headers, and they find their way into answers, events, dead letters and the memory of the
// entity. What does not fit there would fail again and again, so it is bounded when it comes in.
const (
	maxActor   = 256 // of who asks, and of why
	maxCommand = 256 // of the id of a command
)

// item is one command of a batch.
type item struct {
	delivery
	addr       streams.Address
	machine    *machines.Machine
	cached     *cachedEntity
	id         string // the caller's id, without the scope
	hash       string
	reply      string
	trace      string
	actor      string
	reason     string
	end        func(error)
	answer     machines.Answer
	deadLetter string // why it goes to DEAD_LETTERS, or empty
	awaited    bool   // its entity, which it is to drop, has other commands in the stream
	known      bool   // the value knows it: it need not be gone at once

	lookup   bool          // it asks again for a command that the stream has seen before
	again    bool          // it was given up before, and may have its dead letter already
	kept     *answers.Kept // what was answered under its key, if anything
	lost     bool          // something was, and cannot be read
	stored   bool          // the answer is read from what was stored before, by whomever
	replayed bool          // the answer is that of an earlier command under the same key
	revised  bool          // the revision of the answer is known
	raw      []byte        // the answer as it is sent

	repaired map[string]any    // what is told of the value that the command has replaced
	bad      *machines.Refusal // why it has replaced none
}

// parked reports whether the command was refused because nothing may be done to its entity.
func (it *item) parked() bool { return it.cached != nil && it.cached.parked != nil }

// late reports whether the command is answered only after it has ended: what is answered with "dead" can be found in the
// dead letters, and of what is refused because its entity is parked nothing is remembered.
func (it *item) late() bool { return it.deadLetter != "" || it.parked() }

// bare reports whether somebody is told how the command ended, now or when he asks again, and no commit has that: it was refused, or changed nothing.
func (it *item) bare() bool {
	return it.answer.Refusal != nil || it.answer.Outcome != machines.Applied && (it.reply != "" || it.keyed())
}

// newItem makes an item of a delivery. One that cannot be addressed becomes a dead letter.
func (p *partition) newItem(d delivery) *item {
	h := d.msg.Headers()
	it := &item{
		delivery: d, reply: streams.Inbox(streams.Header(h, streams.HeaderReply)), trace: streams.Traceparent(streams.Header(h, streams.HeaderTrace)),
		actor: consumers.Clip(streams.Header(h, streams.HeaderActor), maxActor), reason: consumers.Clip(streams.Header(h, streams.HeaderReason), maxActor),
	}
	addr, err := p.e.Names.ParseStored(d.msg.Subject())
	if err != nil {
		it.refuse(&machines.Refusal{Code: machines.CodeValidation, Message: err.Error()})
		it.deadLetter = err.Error()
		return it
	}
	it.addr = addr
	it.answer = machines.Answer{Machine: addr.Machine, Command: addr.Last}
	it.answer.Namespace, it.answer.Parent, it.answer.ID, _ = streams.SplitKey(addr.Key) // ParseStored has checked it
	it.machine = p.e.Machines.Get(addr.Machine)
	if it.machine != nil && (it.machine.Parent == "") != (it.answer.Parent == "") {
		it.machine = nil
	}
	if it.machine == nil {
		r := &machines.Refusal{Code: machines.CodeNotFound, Message: fmt.Sprintf("there is no machine %q with keys such as %q here", addr.Machine, addr.Key)}
		it.refuse(r)
		it.deadLetter = r.Message
		return it
	}
	it.hash = answers.Fingerprint(addr.Last, streams.Header(h, streams.HeaderExpect), d.msg.Data())
	it.identify(h)
	return it
}

// identify finds out under which id the command was sent. The stream compares ids over all commands: one that belongs to
// another entity would keep a command of that one out, so whoever sends it gets it back.
func (it *item) identify(h nats.Header) {
	sent := streams.Header(h, streams.HeaderID)
	if asked := streams.Header(h, streams.HeaderLookup); asked != "" {
		sent, it.lookup = asked, true
	}
	id, scoped := strings.CutPrefix(sent, streams.CommandID(it.addr.Machine, it.addr.Key, ""))
	switch {
	case sent == "": // sequences are given out again where a stream has lost its last messages
		id = streams.MadeUpID(fmt.Sprintf("seq-%d-%d", it.seq, it.time.UnixNano()))
	case !scoped || id == "" || len(id) > maxCommand:
		r := machines.Invalid(machines.FieldError{Field: streams.HeaderID, Message: fmt.Sprintf("is not %s followed by 1 to %d characters", streams.CommandID(it.addr.Machine, it.addr.Key, ""), maxCommand)})
		it.refuse(r)
		it.deadLetter, it.machine = r.Message, nil
	}
	it.id, it.answer.CommandID = id, id
}

func (it *item) refuse(r *machines.Refusal) {
	it.answer.Outcome, it.answer.Refusal = machines.Refused, consumers.ClipRefusal(r)
}
