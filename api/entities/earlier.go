package entities

import (
	"errors"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// mostLooked bounds the events that are read for a page of some types.
const mostLooked = 1000

// Earlier reads a page backwards, the newest first, of what was before a sequence, 0 for what there is. subjects are those of the types that are wanted, none for all. A stream is read
// forwards only, but each event says which one of its entity was before it, so that one is read after the other; where that is gone, the last one that is left is searched.
func (s *Store) Earlier(q *rest.Request, m *machines.Machine, key string, subjects []string, before uint64, limit int) (*Timeline, error) {
	page := &Timeline{Items: []TimelineEvent{}}
	from := &Stored{Asker: q, Subject: s.Names.EventsOf(m.Name, key)}
	if err := q.InTurn(func() (err error) {
		from.Of, err = s.JS.Stream(q.Context(), s.Names.Stream(streams.EventStream))
		return err
	}); err != nil {
		return nil, err
	}
	msg, err := from.before(before)
	for looked := 1; msg != nil && err == nil; looked++ {
		if subjects == nil || slices.Contains(subjects, msg.Subject) {
			page.Items = append(page.Items, s.event(m, msg))
		}
		next := streams.Previous(msg.Header, msg.Sequence) + 1
		if next > 1 && (len(page.Items) == limit || looked == mostLooked) {
			page.NextCursor = strconv.FormatUint(next, 10)
		}
		if next == 1 || page.NextCursor != "" {
			break
		}
		msg, err = from.before(next)
	}
	return page, err
}

// before is the last one before a sequence, or the last one of all before 0; nil is none.
func (s *Stored) before(seq uint64) (m *jetstream.RawStreamMsg, err error) {
	if seq == 0 {
		err = s.Asker.InTurn(func() (err error) {
			m, err = s.Of.GetLastMsgForSubject(s.Asker.Context(), s.Subject)
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, nil
		}
		return m, err
	}
	s.Last = min(seq-1, s.Of.CachedInfo().State.LastSeq)
	if m, err = s.At(s.Last, s.Last); m != nil || err != nil {
		return m, err
	}
	all, err := s.Newest(1)
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}
