package core

// Atomic batches (ADR-50). The messages of a batch are kept until the one that commits it; then they are checked one after the other, each against the
// stream and those of the batch before it (staging), and stored all or none.

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

const (
	maxBatch        = 1000
	maxBatches      = 50
	batchPatience   = int64(10 * time.Second)
	maxBatchID      = 64
	reasonTimeout   = server.BatchAbandonReason("timeout")
	reasonLarge     = server.BatchAbandonReason("large")
	reasonUnordered = server.BatchAbandonReason("incomplete")
)

type batch struct {
	msgs  []store.Message
	n     uint64 // of the last message
	until int64  // when it is given up
}

// staging is what the messages of a batch have done so far.
type staging struct {
	n        uint64
	msgs     uint64
	bytes    uint64
	ids      map[string]bool
	expected map[string]uint64
	subjects map[string]*stagedSubject
}

type stagedSubject struct {
	n        uint64
	schedule bool
}

func newStaging() *staging {
	return &staging{ids: map[string]bool{}, expected: map[string]uint64{}, subjects: map[string]*stagedSubject{}}
}

// publishBatch takes a message of a batch.
func (s *Stream) publishBatch(id string, m store.Message) {
	if err := s.mayBatch(id, m); err != nil {
		s.refuse(m.Reply, err)
		return
	}
	n, ok := store.Number(m.Header, store.HeaderBatchSeq)
	if !ok || n == ^uint64(0) {
		s.refuse(m.Reply, server.NewJSAtomicPublishMissingSeqError())
		return
	}
	commit, commits := store.Get(m.Header, store.HeaderBatchCommit)
	end := commit == "eob"
	size := n
	if end {
		size--
	}
	b := s.batches[id]
	if b == nil {
		switch {
		case n != 1 && size > maxBatch:
			s.refuse(m.Reply, server.NewJSAtomicPublishTooLargeBatchError(maxBatch))
			return
		case n != 1:
			s.refuse(m.Reply, server.NewJSAtomicPublishIncompleteBatchError())
			return
		case len(s.batches) >= maxBatches:
			s.refuse(m.Reply, server.NewJSAtomicPublishTooManyInflightError())
			return
		}
		b = &batch{}
		s.batches[id] = b
	}
	if commits && !end && commit != "1" {
		delete(s.batches, id)
		s.refuse(m.Reply, server.NewJSAtomicPublishInvalidBatchCommitError())
		return
	}
	b.until = s.c.nanos() + batchPatience
	b.n++
	switch {
	case b.n != n || n == 1 && end:
		s.giveUp(id, reasonUnordered)
		s.refuse(m.Reply, server.NewJSAtomicPublishIncompleteBatchError())
		return
	case size > maxBatch:
		s.giveUp(id, reasonLarge)
		s.refuse(m.Reply, server.NewJSAtomicPublishTooLargeBatchError(maxBatch))
		return
	}
	if !end {
		b.msgs = append(b.msgs, m)
	}
	if !commits {
		if !s.cfg.NoAck {
			s.c.Reply(m.Reply, nil)
		}
		return
	}
	delete(s.batches, id)
	s.commit(id, b.msgs, m.Reply, end)
}

func (s *Stream) mayBatch(id string, m store.Message) *server.ApiError {
	switch {
	case s.cfg.Sealed:
		return server.NewJSStreamSealedError()
	case !s.c.room(s.cfg.Storage):
		return server.NewJSInsufficientResourcesError()
	case s.cfg.MaxMsgSize >= 0 && len(m.Header)+len(m.Data) > int(s.cfg.MaxMsgSize):
		return server.NewJSStreamMessageExceedsMaximumError()
	case !s.cfg.AllowAtomicPublish:
		return server.NewJSAtomicPublishDisabledError()
	case len(id) > maxBatchID:
		return server.NewJSAtomicPublishInvalidBatchIDError()
	}
	return nil
}

// commit stores the messages of a batch, or none of them. end is that the commit itself is none.
func (s *Stream) commit(id string, msgs []store.Message, reply string, end bool) {
	staged := newStaging()
	var writes []*write
	for _, m := range msgs {
		if store.Value(m.Header, store.HeaderExpectMsgID) != "" {
			s.refuse(reply, server.NewJSAtomicPublishUnsupportedHeaderBatchError(store.HeaderExpectMsgID))
			return
		}
		w := &write{subject: s.mapped(m.To), header: m.Header, data: m.Data}
		dup, err := s.checkStaged(w, staged)
		if dup > 0 {
			err = server.NewJSAtomicPublishContainsDuplicateMessageError()
		}
		if err != nil {
			s.refuse(reply, err)
			return
		}
		writes = append(writes, w)
		staged.n++
	}
	var all []*store.Entry
	for i, w := range writes {
		if i == len(writes)-1 {
			w.reply, w.batch, w.count = reply, id, uint64(len(writes))
			if end {
				w.header = store.With(w.header, store.HeaderBatchCommit, "1")
			}
		}
		if err := s.checkStore(w); err != nil { // the header that an end adds may be too much; what is before it stays
			s.refuse(w.reply, err)
			break
		}
		all = append(all, s.accept(w))
	}
	s.tell(all...)
}

// checkStaged are the checks of a message before it is proposed to replicas, or committed with a batch.
func (s *Stream) checkStaged(w *write, staged *staging) (duplicate uint64, refused *server.ApiError) {
	h := w.header
	if len(h) > 0xffff {
		return 0, server.NewJSStreamHeaderExceedsMaximumError()
	}
	if len(h) > 0 {
		if err := s.checkTold(h); err != nil {
			return 0, err
		}
		if ttl, err := parseTTL(store.Value(h, store.HeaderTTL)); ttl != 0 || err != nil {
			if !s.cfg.AllowMsgTTL {
				return 0, server.NewJSMessageTTLDisabledError()
			}
			if err != nil {
				return 0, server.NewJSMessageTTLInvalidError()
			}
		}
		if w.id = store.Value(h, store.HeaderMsgID); w.id != "" {
			if staged.ids[w.id] {
				return 0, server.NewJSAtomicPublishContainsDuplicateMessageError()
			}
			if k, ok := s.known(w.id); ok {
				return k.seq, nil
			}
			staged.ids[w.id] = true
		}
		if store.Value(h, store.HeaderStreamSource) != "" {
			return 0, server.NewJSMessageSourceHdrNotAllowedError()
		}
		if err := s.checkLast(w, staged); err != nil {
			return 0, err
		}
		if err := s.checkSubject(w, staged); err != nil {
			return 0, err
		}
		if err := s.checkSchedule(w); err != nil {
			return 0, err
		}
		if err := s.checkScheduler(w, staged); err != nil {
			return 0, err
		}
		if err := s.checkRollup(w); err != nil {
			return 0, err
		}
		switch {
		case w.rollup == store.RollupSubject && staged.subjects[w.subject] != nil:
			return 0, server.NewJSStreamRollupFailedError(errors.New("batch rollup sub invalid"))
		case w.rollup == store.RollupAll && len(staged.subjects) > 0:
			return 0, server.NewJSStreamRollupFailedError(errors.New("batch rollup all invalid"))
		}
	}
	return 0, s.stage(w, staged)
}

// stage notes what a message does, and whether there is room for it.
func (s *Stream) stage(w *write, staged *staging) *server.ApiError {
	at := staged.subjects[w.subject]
	if at == nil {
		at = &stagedSubject{}
		staged.subjects[w.subject] = at
	}
	at.n++
	at.schedule = store.Value(w.header, store.HeaderSchedule) != ""
	staged.msgs++
	staged.bytes += s.size(w.subject, w.header, w.data)
	if s.cfg.Discard != server.DiscardNew {
		return nil
	}
	var err error
	l := s.log
	switch {
	case s.cfg.MaxMsgs > 0 && l.N+staged.msgs > uint64(s.cfg.MaxMsgs):
		err = server.ErrMaxMsgs
	case s.cfg.MaxBytes > 0 && l.Bytes+staged.bytes > uint64(s.cfg.MaxBytes):
		err = server.ErrMaxBytes
	case s.cfg.DiscardNewPer && s.cfg.MaxMsgsPer > 0 && store.Value(w.header, store.HeaderRollup) == "":
		there := uint64(0)
		if x := l.Subjects[w.subject]; x != nil {
			there = uint64(len(x.Seqs))
		}
		if there+at.n > uint64(s.cfg.MaxMsgsPer) {
			err = server.ErrMaxMsgsPerSubject
		}
	}
	if err != nil {
		return server.NewJSStreamStoreFailedError(err, server.Unless(err))
	}
	return nil
}

func (s *Stream) giveUp(id string, reason server.BatchAbandonReason) {
	delete(s.batches, id)
	s.c.Advise("STREAM.BATCH_ABANDONED."+s.cfg.Name, &server.JSStreamBatchAbandonedAdvisory{
		TypedEvent: s.c.Event(server.JSStreamBatchAbandonedAdvisoryType), Stream: s.cfg.Name, BatchId: id, Reason: reason,
	})
}

// abandon gives up batches that were not committed in time.
func (s *Stream) abandon(now int64) {
	for _, id := range slices.Sorted(maps.Keys(s.batches)) {
		if s.batches[id].until <= now {
			s.giveUp(id, reasonTimeout)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.fast)) {
		if s.fast[id].until <= now {
			delete(s.fast, id)
		}
	}
}
