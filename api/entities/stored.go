package entities

import (
	"errors"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/rest"
)

// Newest is a page of the messages of a stream, under a subject: the newest first, as many as the request says (see [rest.NewestParams]), and the cursor of the next page.
func (s *Store) Newest(q *rest.Request, stream, subject string) (page []*jetstream.RawStreamMsg, next string, err error) {
	from := &Stored{Asker: q, Subject: subject}
	if err := q.InTurn(func() (err error) {
		from.Of, err = s.JS.Stream(q.Context(), stream)
		return err
	}); err != nil {
		return nil, "", err
	}
	from.Last = from.Of.CachedInfo().State.LastSeq
	if before := q.Number("cursor"); before > 0 {
		from.Last = min(from.Last, before-1)
	}
	limit := rest.DefaultNewest
	if n := q.Number("limit"); n > 0 {
		limit = int(n)
	}
	if page, err = from.Newest(limit + 1); err != nil {
		return nil, "", err
	}
	if len(page) > limit {
		page = page[1:]
		next = strconv.FormatUint(page[0].Sequence, 10)
	}
	slices.Reverse(page)
	return page, next, nil
}

// Stored are the messages of a stream under a subject, which may have wildcards, up to a sequence. The leader of the stream is asked, each time in the turn of who asks; nothing is consumed.
type Stored struct {
	Asker   *rest.Request
	Of      jetstream.Stream
	Subject string
	Last    uint64
}

// At is the first one from a sequence up to another one; nil is none.
func (s *Stored) At(seq, last uint64) (m *jetstream.RawStreamMsg, err error) {
	if seq > last {
		return nil, nil
	}
	err = s.Asker.InTurn(func() (err error) {
		m, err = s.Of.GetMsg(s.Asker.Context(), max(1, seq), jetstream.WithGetMsgSubject(s.Subject))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence > last {
		return nil, nil
	}
	return m, err
}

// Newest are the last ones, the oldest of them first. A stream can be asked only for what comes next, and one of work that is done is mostly holes: so it is halved, the newer half first, and halves in which
// nothing is left cost one question.
func (s *Stored) Newest(limit int) ([]*jetstream.RawStreamMsg, error) {
	first, err := s.At(1, s.Last)
	if first == nil || err != nil {
		return nil, err
	}
	return s.within(first, s.Last, limit)
}

// within are the last ones of those from first up to a sequence, first among them.
func (s *Stored) within(first *jetstream.RawStreamMsg, last uint64, limit int) (page []*jetstream.RawStreamMsg, err error) {
	for first.Sequence < last && len(page) < limit {
		middle := first.Sequence + (last-first.Sequence+1)/2
		m, err := s.At(middle, last)
		if err != nil {
			return nil, err
		}
		if m != nil {
			newer, err := s.within(m, last, limit-len(page))
			if err != nil {
				return nil, err
			}
			page = append(newer, page...)
		}
		last = middle - 1
	}
	if len(page) < limit {
		page = append([]*jetstream.RawStreamMsg{first}, page...)
	}
	return page, nil
}
