package core

// Messages that fire later (ADR-51). A schedule is the last message of its subject, with the time in a header; when it is due, the stream stores its
// body under the target, and removes it in the same step. The server looks at its schedules a quarter of a second after one was stored at the
// earliest, and so does the stream.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

const scheduleFloor = int64(250 * time.Millisecond)

type schedule struct {
	seq uint64
	at  int64
}

// scheduledAt is when a message fires; zero is never.
func scheduledAt(header []byte) (time.Time, *server.ApiError) {
	pattern := store.Value(header, store.HeaderSchedule)
	if pattern == "" {
		return time.Time{}, nil
	}
	at, ok := strings.CutPrefix(pattern, "@at ")
	if !ok || store.Value(header, store.HeaderScheduleZone) != "" {
		return time.Time{}, server.NewJSMessageSchedulesPatternInvalidError() // @every and cron are not modelled
	}
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return time.Time{}, server.NewJSMessageSchedulesPatternInvalidError()
	}
	return t, nil
}

// checkSchedule is what is wrong with a schedule. One that has none gets the rollup that makes it the only one of its subject.
func (s *Stream) checkSchedule(w *write) *server.ApiError {
	h := w.header
	at, err := scheduledAt(h)
	if err == nil && at.IsZero() {
		return nil
	}
	if !s.cfg.AllowMsgSchedules {
		return server.NewJSMessageSchedulesDisabledError()
	}
	if err != nil {
		return err
	}
	ttl := store.Value(h, store.HeaderScheduleTTL)
	if _, bad := parseTTL(ttl); bad != nil {
		return server.NewJSMessageSchedulesTTLInvalidError()
	}
	if r := strings.ToLower(store.Value(h, store.HeaderScheduleRollup)); r != "" && r != store.RollupSubject {
		return server.NewJSMessageSchedulesRollupInvalidError()
	}
	if ttl != "" && !s.cfg.AllowMsgTTL {
		return server.NewJSMessageTTLDisabledError()
	}
	target, source := store.Value(h, store.HeaderScheduleTarget), store.Value(h, store.HeaderScheduleSource)
	if !literal(target) || target == w.subject {
		return server.NewJSMessageSchedulesTargetInvalidError()
	}
	if source != "" && (source == target || source == w.subject || !literal(source)) {
		return server.NewJSMessageSchedulesSourceInvalidError()
	}
	if !s.takes(target) {
		return server.NewJSMessageSchedulesTargetInvalidError()
	}
	if source != "" && !s.takes(source) {
		return server.NewJSMessageSchedulesSourceInvalidError()
	}
	switch strings.ToLower(store.Value(h, store.HeaderRollup)) {
	case "":
		w.header = store.With(h, store.HeaderRollup, store.RollupSubject)
	case store.RollupSubject:
	default:
		return server.NewJSMessageSchedulesRollupInvalidError()
	}
	return nil
}

// checkScheduler is what is wrong with a message that cancels a schedule.
func (s *Stream) checkScheduler(w *write, staged *staging) *server.ApiError {
	next, by := store.Value(w.header, store.HeaderScheduleNext), store.Value(w.header, store.HeaderScheduler)
	if next == "" {
		if by != "" {
			return server.NewJSMessageSchedulesSchedulerInvalidError()
		}
		return nil
	}
	if next != store.NextPurge || by == w.subject || !literal(by) {
		return server.NewJSMessageSchedulesSchedulerInvalidError()
	}
	if !s.cfg.AllowMsgSchedules {
		return server.NewJSMessageSchedulesDisabledError()
	}
	if staged != nil {
		if at := staged.subjects[by]; at != nil {
			if !at.schedule {
				return server.NewJSMessageSchedulesSchedulerInvalidError()
			}
			return nil
		}
	}
	if e := s.log.LastUnder(by); e != nil && store.Value(e.Header, store.HeaderSchedule) == "" {
		return server.NewJSMessageSchedulesSchedulerInvalidError()
	}
	return nil
}

func literal(subject string) bool { return store.Valid(subject) && !store.Wild(subject) }

// takes reports whether the stream stores what is sent to a subject.
func (s *Stream) takes(subject string) bool {
	return slices.ContainsFunc(s.cfg.Subjects, func(f string) bool { return store.Collide(f, subject) })
}

// schedule notes when a message fires, or that it takes the place of a schedule.
func (s *Stream) schedule(e *store.Entry) {
	if !s.cfg.AllowMsgSchedules {
		return
	}
	if at, err := scheduledAt(e.Header); err == nil && !at.IsZero() {
		s.schedules[e.Subject] = &schedule{e.Seq, at.UnixNano()}
		s.arm()
	} else if store.Value(e.Header, store.HeaderScheduler) == "" {
		delete(s.schedules, e.Subject)
	}
}

// unschedule forgets a message that is gone.
func (s *Stream) unschedule(e *store.Entry) {
	if at := s.schedules[e.Subject]; at != nil && at.seq == e.Seq {
		delete(s.schedules, e.Subject)
	}
}

// arm looks at the schedules when the next one is due, but not too soon. A look that is planned for an earlier time stays.
func (s *Stream) arm() {
	next := never
	for _, at := range s.schedules {
		next = min(next, at.at)
	}
	if next == never {
		s.armed = 0
		return
	}
	next = max(next+int64(s.c.behind), s.c.nanos()+scheduleFloor)
	if s.armed == 0 || next < s.armed {
		s.armed = next
	}
}

// fireSchedules stores what is due, in the order in which it was stored.
func (s *Stream) fireSchedules() {
	if s.armed == 0 || s.armed > s.c.nanos() || s.Silent() {
		return
	}
	var due []*store.Entry
	for _, at := range s.schedules {
		if e := s.log.At(at.seq); e != nil && at.at <= s.c.wall() {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *store.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, e := range due {
		delete(s.schedules, e.Subject)
		s.fireOne(e)
	}
	s.armed = 0
	s.arm()
}

func (s *Stream) fireOne(e *store.Entry) {
	by, target := e.Subject, store.Value(e.Header, store.HeaderScheduleTarget)
	ttl, rollup := store.Value(e.Header, store.HeaderScheduleTTL), store.Value(e.Header, store.HeaderScheduleRollup)
	if source := store.Value(e.Header, store.HeaderScheduleSource); source != "" {
		if last := s.log.LastUnder(source); last != nil {
			e = last
		}
	}
	header := store.With(store.With(store.Fired(e.Header), store.HeaderScheduler, by), store.HeaderScheduleNext, store.NextPurge)
	if ttl != "" {
		header = store.With(header, store.HeaderTTL, ttl)
	}
	if rollup != "" {
		header = store.With(header, store.HeaderRollup, rollup)
	}
	w := &write{subject: s.mapped(target), header: header, data: e.Data, rollup: strings.ToLower(rollup)}
	if s.c.room(s.cfg.Storage) && s.checkStore(w) == nil {
		s.tell(s.accept(w))
	}
}
