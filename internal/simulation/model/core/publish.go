package core

// A publish, from the subject to the answer. The checks come in the order of the server, because the first that fails is the answer; single servers
// and replicated streams differ in that order (check and checkProposed). Then the message is stored, rolled up, published again, and answered.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// write is a message on its way into a stream.
type write struct {
	subject, reply string // subject as it is stored
	header, data   []byte
	id             string // Nats-Msg-Id
	rollup         string
	ttl            int64
	batch          string // of the answer: the message ends this batch
	count          uint64
}

// publish takes a message that the stream stores.
func (s *Stream) publish(m store.Message) {
	if s.Silent() {
		return
	}
	header := m.Header
	if id := store.Value(header, store.HeaderBatchID); id != "" {
		s.publishBatch(id, m)
		return
	}
	if strings.HasSuffix(m.Reply, fastSuffix) {
		s.publishFast(m, parseFast(m.Reply))
		return
	}
	w := &write{subject: s.mapped(m.To), reply: m.Reply, header: header, data: m.Data}
	if dup, err := s.check(w); err != nil {
		s.refuse(w.reply, err)
	} else if dup > 0 {
		s.answer(w.reply, utoa(dup)+`,"duplicate": true}`)
	} else {
		s.tell(s.accept(w))
	}
}

// tell lets the consumers know of messages: of all before they deliver one. What these have pushed out makes room for deliveries first.
func (s *Stream) tell(all ...*store.Entry) {
	if s.c.o.LateRoom == nil || !s.c.o.LateRoom() {
		s.c.runLater()
	}
	for _, o := range slices.Clone(s.order) {
		o.Stored(all...)
	}
}

// mapped is the subject that a message is stored under.
func (s *Stream) mapped(subject string) string {
	if s.transform != nil {
		if to, ok := s.transform.Apply(subject); ok {
			return to
		}
	}
	return subject
}

func (s *Stream) answer(reply, rest string) {
	if reply == "" || s.cfg.NoAck {
		return
	}
	s.c.Reply(reply, append(slices.Clip(s.ack), rest...))
}

func (s *Stream) refuse(reply string, err *server.ApiError) {
	if !s.cfg.NoAck {
		s.refusal(reply, err)
	}
}

// refusal answers why something is not stored, whether answers are wanted or not.
func (s *Stream) refusal(reply string, err *server.ApiError) {
	b, _ := json.Marshal(&server.JSPubAckResponse{PubAck: &server.PubAck{Stream: s.cfg.Name}, Error: err}) // cannot fail
	s.c.Reply(reply, b)
}

// check is why a message is not stored, or the sequence under which its id is stored already.
func (s *Stream) check(w *write) (duplicate uint64, refused *server.ApiError) {
	if s.cfg.Sealed {
		return 0, server.NewJSStreamSealedError()
	}
	if s.Replicated() {
		return s.checkReplicated(w)
	}
	if err := s.fits(w.header, w.data); err != nil {
		return 0, err
	}
	if len(w.header) > 0 {
		if err := s.checkHeaders(w); err != nil {
			return 0, err
		}
		if w.id = store.Value(w.header, store.HeaderMsgID); w.id != "" {
			if k, ok := s.known(w.id); ok {
				return k.seq, nil
			}
		}
		if last := store.Value(w.header, store.HeaderExpectMsgID); last != "" && last != s.lastID {
			return 0, server.NewJSStreamWrongLastMsgIDError(s.lastID)
		}
		if err := s.checkRollup(w); err != nil {
			return 0, err
		}
		if err := s.fits(w.header, w.data); err != nil { // a header may have been added
			return 0, err
		}
	}
	if !s.c.room(s.cfg.Storage) {
		return 0, server.NewJSInsufficientResourcesError()
	}
	return 0, s.checkStore(w)
}

// checkReplicated is check on a stream with replicas, whose leader looks at the id of a message before it looks at what the message expects.
func (s *Stream) checkReplicated(w *write) (duplicate uint64, refused *server.ApiError) {
	if !s.c.room(s.cfg.Storage) {
		return 0, server.NewJSInsufficientResourcesError()
	}
	if most := int(s.cfg.MaxMsgSize); most >= 0 && len(w.header)+len(w.data) > most {
		return 0, server.NewJSStreamMessageExceedsMaximumError()
	}
	dup, err := s.checkStaged(w, newStaging())
	if dup > 0 || err != nil {
		return dup, err
	}
	if last := store.Value(w.header, store.HeaderExpectMsgID); last != "" && last != s.lastID {
		return 0, server.NewJSStreamWrongLastMsgIDError(s.lastID)
	}
	return 0, s.checkStore(w)
}

// checkStore are the checks that come last.
func (s *Stream) checkStore(w *write) *server.ApiError {
	if len(w.header) > 0 {
		ttl, err := parseTTL(store.Value(w.header, store.HeaderTTL))
		if err != nil {
			return server.NewJSMessageTTLInvalidError()
		}
		w.ttl = ttl
	}
	if err := s.refuses(w.subject, w.header, w.data); err != nil {
		return server.NewJSStreamStoreFailedError(err, server.Unless(err))
	}
	return nil
}

func (s *Stream) fits(header, data []byte) *server.ApiError {
	if most := int(s.cfg.MaxMsgSize); most >= 0 && len(header)+len(data) > most {
		return server.NewJSStreamMessageExceedsMaximumError()
	}
	if len(header) > math.MaxUint16 {
		return server.NewJSStreamHeaderExceedsMaximumError()
	}
	return nil
}

// checkHeaders are the checks of what a message expects and asks for, in the order of a single server.
func (s *Stream) checkHeaders(w *write) *server.ApiError {
	h := w.header
	if err := s.checkTold(h); err != nil {
		return err
	}
	if ttl, _ := parseTTL(store.Value(h, store.HeaderTTL)); ttl != 0 && !s.cfg.AllowMsgTTL {
		return server.NewJSMessageTTLDisabledError()
	}
	if err := s.checkSubject(w, nil); err != nil {
		return err
	}
	if err := s.checkLast(w, nil); err != nil {
		return err
	}
	if err := s.checkSchedule(w); err != nil {
		return err
	}
	if err := s.checkScheduler(w, nil); err != nil {
		return err
	}
	if store.Value(h, store.HeaderStreamSource) != "" {
		return server.NewJSMessageSourceHdrNotAllowedError()
	}
	return nil
}

// checkTold are the checks that need no state.
func (s *Stream) checkTold(h []byte) *server.ApiError {
	if store.Value(h, store.HeaderIncr) != "" {
		return server.NewJSMessageIncrDisabledError() // no stream counts
	}
	if name := store.Value(h, store.HeaderExpectStream); name != "" && name != s.cfg.Name {
		return server.NewJSStreamNotMatchError()
	}
	return nil
}

// checkLast is the expected last sequence of the stream. In a batch only the first message may have one.
func (s *Stream) checkLast(w *write, staged *staging) *server.ApiError {
	seq, ok := store.Number(w.header, store.HeaderExpectLast)
	last := s.log.Last
	if staged != nil {
		last += staged.n
	}
	switch {
	case ok && seq != last:
		return server.NewJSStreamWrongLastSequenceError(last)
	case ok && staged != nil && staged.n > 0:
		return server.NewJSStreamWrongLastSequenceConstantError()
	}
	return nil
}

// checkSubject is the expected last sequence under a subject: the own one, or another one, with wildcards or not.
func (s *Stream) checkSubject(w *write, staged *staging) *server.ApiError {
	other := store.Value(w.header, store.HeaderExpectFor)
	seq, ok := store.Number(w.header, store.HeaderExpectSubject)
	if !ok {
		if other != "" {
			return server.NewJSStreamExpectedLastSeqPerSubjectInvalidError()
		}
		return nil
	}
	subject := w.subject
	if other != "" {
		subject = other
	}
	if staged != nil {
		if staged.subjects[subject] != nil {
			return server.NewJSStreamWrongLastSequenceConstantError()
		}
		if had, ok := staged.expected[subject]; ok {
			if had != seq {
				return server.NewJSStreamWrongLastSequenceError(had)
			}
			return nil
		}
	}
	var last uint64
	if e := s.log.LastUnder(subject); e != nil {
		last = e.Seq
	}
	if last != seq {
		return server.NewJSStreamWrongLastSequenceError(last)
	}
	if staged != nil {
		staged.expected[subject] = seq
	}
	return nil
}

func (s *Stream) checkRollup(w *write) *server.ApiError {
	w.rollup = strings.ToLower(store.Value(w.header, store.HeaderRollup))
	if w.rollup == "" {
		return nil
	}
	if !s.cfg.AllowRollup || s.cfg.DenyPurge {
		return server.NewJSStreamRollupFailedError(errors.New("rollup not permitted"))
	}
	if w.rollup != store.RollupSubject && w.rollup != store.RollupAll {
		return server.NewJSStreamRollupFailedError(fmt.Errorf("rollup value invalid: %q", w.rollup))
	}
	return nil
}

// accept stores a message that has passed its checks.
func (s *Stream) accept(w *write) *store.Entry {
	var before uint64
	again := ""
	if s.republish != nil {
		again, _ = s.republish.Apply(w.subject)
		if e := s.log.LastUnder(w.subject); again != "" && e != nil {
			before = e.Seq
		}
	}
	e := s.store(w.subject, w.header, w.data, w.ttl)
	s.lastID = w.id
	s.remember(w.id, e.Seq, e.TS)
	if s.cfg.AllowRollup && !s.cfg.DenyPurge {
		s.rollUp(w)
	}
	if again != "" {
		s.c.Send(store.Message{To: again, Header: s.republished(w, e, before), Data: w.data})
	}
	switch {
	case w.batch != "":
		s.answer(w.reply, utoa(e.Seq)+fmt.Sprintf(",\"batch\":%q,\"count\":%d}", w.batch, w.count))
	default:
		s.answer(w.reply, utoa(e.Seq)+"}")
	}
	return e
}

// rollUp removes what a message replaces, and the schedule that has fired it or that it cancels.
func (s *Stream) rollUp(w *write) {
	switch w.rollup {
	case store.RollupSubject:
		s.Purge(w.subject, 0, 1)
	case store.RollupAll:
		s.Purge("", 0, 1)
	}
	if store.Value(w.header, store.HeaderScheduleNext) == store.NextPurge {
		if by := store.Value(w.header, store.HeaderScheduler); by != "" {
			s.Purge(by, 0, 0)
		}
	}
}

// republished are the headers of a message that is published again.
func (s *Stream) republished(w *write, e *store.Entry, before uint64) []byte {
	b := []byte(store.HeaderLine)
	if len(w.header) > 0 {
		b = slices.Clone(w.header[:len(w.header)-len(store.CRLF)])
	}
	return fmt.Appendf(b, "Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\nNats-Last-Sequence: %d\r\n\r\n",
		s.cfg.Name, w.subject, e.Seq, When(e.TS).Format(time.RFC3339Nano), before)
}

// parseTTL is the life of a message in seconds: 0 is none, less is for ever.
func parseTTL(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if strings.EqualFold(text, "never") {
		return -1, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < time.Second {
			return 0, errors.New("too short")
		}
		return int64(d.Seconds()), nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err
}
