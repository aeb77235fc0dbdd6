package prober

// Reports as commands, and their answers. report and reportZone queue a command; up to 256 at a time are sent and awaited (send), and onAnswer decides again from the revision
// that the report has made. A report that is no longer true when its turn comes is dropped (stillTrue). Admissions (admit) are sent without awaiting the engine.

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Bounds of what is on its way.
const (
	maxAsking   = 256
	maxAdmits   = 4096
	askTimeout  = 10 * time.Second
	admitAgain  = 5 * time.Second  // the state did not move
	sameAgain   = 10 * time.Second // after the same report, which changed nothing
	awaitWithin = 5 * time.Second  // for the revision of an answer to arrive
	unsaidAgain = time.Second      // after one that was not answered; doubled each time up to unsaidMost
	unsaidMost  = 8 * time.Second
	actor       = "prober"
)

// ask is a command whose answer is awaited: of an instance, or of a zone's preservation.
type ask struct {
	t            *tracked
	z            *zone
	cmd          publish.Command
	fence        cluster.Fence // what it is reported under
	epoch        uint64
	droppedBeats uint64
}

type answer struct {
	ask
	answer machines.Answer
	err    error
}

// inFlight are the commands that are asked, and those that wait for their turn.
type inFlight struct {
	running int
	waiting []ask
}

// report sends a report of an instance, but not the same one twice within a while at one revision.
func (l *loop) report(t *tracked, now time.Duration, input string, data any) bool {
	said := lastReport{what: input}
	if v, ok := data.(instance.Evidence); ok {
		said.by = v.Observer
	}
	if t.lastReport == said && t.lastReportAt == t.revision && now < t.again {
		return false
	}
	body, ok := l.reportBody(data)
	if !ok {
		return false
	}
	t.nextReport = 0
	t.inFlight, t.lastReport, t.lastReportAt, t.again = true, said, t.revision, now+sameAgain
	l.enqueue(ask{t: t, cmd: publish.Command{Machine: instance.Machine.Name, Key: t.key, Name: input, Actor: actor, Body: body}})
	return true
}

// reportBody is a [machines.Report] with that data.
func (l *loop) reportBody(data any) ([]byte, bool) {
	if data == nil {
		return []byte("{}"), true
	}
	raw, err := json.Marshal(data)
	if err != nil { // none of the types can
		l.log.Error("cannot write a report", "error", err)
		return nil, false
	}
	return append(append(append(make([]byte, 0, len(raw)+9), `{"data":`...), raw...), '}'), true
}

func (l *loop) enqueue(a ask) {
	name := a.cmd.Key
	if a.z != nil {
		name = a.z.service.name
	}
	a.fence, a.epoch, a.droppedBeats = l.fence(name), l.epochOf(a.t), l.droppedBeats
	a.cmd.Fence = a.fence.String()
	l.inFlight.waiting = append(l.inFlight.waiting, a)
	l.sendNext()
}

// fence is what an instance or a service is reported under.
func (l *loop) fence(key string) cluster.Fence {
	p := streams.Partition(instance.Machine.Name, key)
	return cluster.Fence{Partition: p, Claim: l.claims[p]}
}

// stillTrue reports whether what waits to be sent is still what this node sees: it owns the partition as it did, and has heard everything since.
func (l *loop) stillTrue(a *ask) bool {
	if a.cmd.Name == instance.ReportMissed && a.droppedBeats != l.droppedBeats {
		return false
	}
	return l.owned.Has(a.fence.Partition) && l.claims[a.fence.Partition] == a.fence.Claim && l.epochOf(a.t) == a.epoch && (a.t == nil || !a.t.gone())
}

func (l *loop) sendNext() {
	for l.inFlight.running < maxAsking && len(l.inFlight.waiting) > 0 {
		a := l.inFlight.waiting[0]
		l.inFlight.waiting[0] = ask{}
		l.inFlight.waiting = l.inFlight.waiting[1:]
		if !l.stillTrue(&a) {
			if a.t != nil {
				a.t.inFlight, a.t.lastReport = false, lastReport{}
				a.t.uncountRemoval()
				l.plan(a.t, l.now())
			}
			continue
		}
		l.inFlight.running++
		l.background.Go(func() { l.send(a) })
	}
	if len(l.inFlight.waiting) == 0 {
		l.inFlight.waiting = nil // what a burst needed is not kept
	}
}

// send asks and hands the answer to the loop.
func (l *loop) send(a ask) {
	ctx, cancel := context.WithTimeout(l.ctx, askTimeout)
	defer cancel()
	raw, err := l.Commands.Ask(ctx, a.cmd)
	r := answer{ask: a, err: err}
	if err == nil {
		r.err = json.Unmarshal(raw, &r.answer)
	}
	outcome := r.answer.Outcome
	if r.err != nil {
		outcome = "unanswered"
	}
	l.metrics.Reported(a.cmd.Name, outcome)
	select {
	case l.answers <- r:
	case <-l.ctx.Done():
	}
}

// onAnswer continues with what the engine has decided.
func (l *loop) onAnswer(a *answer) {
	l.inFlight.running--
	l.sendNext()
	now := l.now()
	if a.z != nil {
		l.onZoneAnswer(a, now)
		return
	}
	t := a.t
	t.inFlight = false
	if a.err == nil && a.answer.Outcome != machines.Applied {
		t.uncountRemoval() // also one that somebody else ended
	}
	if t.gone() {
		return
	}
	if a.err != nil {
		l.log.Debug("a report was not answered", "instance", t.key, "report", a.cmd.Name, "error", a.err)
		pause := min(unsaidAgain<<min(t.unanswered, 10), unsaidMost)
		t.lastReport, t.unanswered, t.nextReport = lastReport{}, t.unanswered+1, now+pause/2+spread(pause/2) // not all at once
		l.plan(t, now)
		return
	}
	t.unanswered = 0
	switch {
	case a.answer.Outcome == machines.Applied:
		t.await, t.until = a.answer.Revision, now+awaitWithin
	default: // somebody was faster, or there was nothing to change
		l.log.Debug("a report changed nothing", "instance", t.key, "report", a.cmd.Name, "outcome", a.answer.Outcome, "refusal", a.answer.Refusal)
	}
	l.decide(t, now)
	l.plan(t, now)
}

// admits counts the admissions that are on their way: they are many at once, and are not awaited one by one.
type admits struct{ running atomic.Int64 }

// admit confirms that a registration was read back, or says why it cannot be.
func (l *loop) admit(t *tracked, now time.Duration) {
	if l.admits.running.Load() >= maxAdmits {
		t.retryAt = now + 5*time.Millisecond
		return
	}
	told := instance.Admission{Generation: t.rec.Generation, Revision: t.revision}
	if t.admittedWithBeat() && t.passes >= t.rec.Data.Rise() {
		v := l.evidence(t)
		v.Consecutive, told.Passed = t.passes, &v
	}
	t.held, t.retryAt = false, now+admitAgain
	cmd := publish.Command{Machine: instance.Machine.Name, Key: t.key, Name: instance.ReportPersisted, Actor: actor, Fence: l.fence(t.key).String()}
	var data any = told
	if err := l.Checker.Admit(t.rec.Data.Check, t.rec.Data.NodeAddress); err != nil {
		l.log.Warn("an instance is not admitted: its check can never be carried out here, which the node that took the registration did not find", "instance", t.key, "reason", err)
		cmd.Name, data = instance.ReportRefused, instance.RefusalReport{Reason: err.Error(), Generation: t.rec.Generation}
	}
	body, ok := l.reportBody(data)
	if !ok {
		return
	}
	cmd.Body = body
	l.admits.running.Add(1)
	err := l.Commands.Start(cmd, "", func(r publish.Result) {
		l.admits.running.Add(-1)
		outcome := "stored"
		if r.Err != nil {
			outcome = "unanswered"
		}
		l.metrics.Reported(cmd.Name, outcome)
	})
	if err != nil {
		l.admits.running.Add(-1)
		t.retryAt = now + time.Second
	}
}
