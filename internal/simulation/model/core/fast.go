package core

// Batches of fast ingest. Each message is stored as it comes; the subject of its answer says the batch, how often the sender wants to hear of it, what a gap
// means, its number and what it is: the first, another one, the last, the end, or a question. The stream answers with how far it is, with gaps and
// errors, and with one acknowledgment for all of the batch.

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

const (
	fastSuffix = ".$FI"
	fastFlow   = 500 // messages between two answers, at most
)

// fastBatch is a batch under way.
type fastBatch struct {
	last   uint64 // number of the last message
	told   uint64 // that the sender was told of
	seq    uint64 // of the last message in the stream
	every  uint64 // messages between two answers
	most   uint64
	gapsOK bool
	until  int64
}

// fastOp is what the subject of an answer says: <prefix>.<batch>.<flow>.<gap>.<n>.<op>.$FI.
type fastOp struct {
	id            string
	n, flow       uint64
	gapsOK        bool
	commit, end   bool
	ping, unknown bool
}

func parseFast(reply string) fastOp {
	t := strings.Split(strings.TrimSuffix(reply, fastSuffix), ".")
	bad := fastOp{unknown: true}
	if len(t) < 6 {
		return bad
	}
	t = t[len(t)-5:]
	op, err := strconv.Atoi(t[4])
	n, errN := strconv.ParseUint(t[3], 10, 64)
	if err != nil || errN != nil || op < 0 || op > 4 || n == 0 || n == math.MaxUint64 || n == 1 && op == 3 || op == 0 && n != 1 || op == 1 && n <= 1 || t[2] != "fail" && t[2] != "ok" {
		return bad
	}
	flow, err := strconv.Atoi(t[1])
	if err != nil || flow <= 0 {
		flow = 10
	}
	return fastOp{id: t[0], n: n, flow: uint64(min(flow, math.MaxUint16)), gapsOK: t[2] == "ok", commit: op == 2 || op == 3, end: op == 3, ping: op == 4}
}

func (s *Stream) publishFast(m store.Message, op fastOp) {
	if err := s.mayFast(m, op); err != nil {
		s.refuse(m.Reply, err)
		return
	}
	b := s.fast[op.id]
	if b == nil {
		if op.n != 1 || op.ping {
			s.refuse(m.Reply, server.NewJSBatchPublishUnknownBatchIDError())
			return
		}
		b = &fastBatch{most: op.flow, every: min(fastFlow, op.flow), gapsOK: op.gapsOK}
		if s.fast[op.id] = b; len(s.fast) > 1 {
			b.every = 1
		}
	}
	b.until = s.c.nanos() + batchPatience
	if op.ping {
		s.pingFast(b, m, op)
		return
	}
	if b.last++; b.last != op.n {
		s.flow(m.Reply, server.BatchFlowGap{ExpectedLastSequence: b.last, CurrentSequence: op.n})
		if !b.gapsOK || op.n < b.last {
			b.last--
			s.endFast(b, m.Reply, op.id)
			return
		}
		b.last = op.n
	}
	if op.end {
		b.last--
		s.endFast(b, m.Reply, op.id)
		return
	}
	if op.n == 1 && !op.commit && !s.cfg.NoAck {
		s.flow(m.Reply, server.BatchFlowAck{Messages: uint16(b.every)})
	}
	s.storeFast(b, m, op)
}

func (s *Stream) mayFast(m store.Message, op fastOp) *server.ApiError {
	switch {
	case s.cfg.Sealed:
		return server.NewJSStreamSealedError()
	case !s.c.room(s.cfg.Storage):
		return server.NewJSInsufficientResourcesError()
	case s.cfg.MaxMsgSize >= 0 && len(m.Header)+len(m.Data) > int(s.cfg.MaxMsgSize):
		return server.NewJSStreamMessageExceedsMaximumError()
	case !s.cfg.AllowBatchPublish:
		return server.NewJSBatchPublishDisabledError()
	case op.unknown:
		return server.NewJSBatchPublishInvalidPatternError()
	case len(op.id) > maxBatchID:
		return server.NewJSBatchPublishInvalidBatchIDError()
	}
	return nil
}

// storeFast stores a message of a batch, or ends the batch before it.
func (s *Stream) storeFast(b *fastBatch, m store.Message, op fastOp) {
	w := &write{subject: s.mapped(m.To), header: m.Header, data: m.Data}
	dup, err := s.checkStaged(w, newStaging())
	if dup > 0 {
		s.progressFast(b, m.Reply)
	}
	switch {
	case err == nil && dup == 0:
		w.ttl, _ = parseTTL(store.Value(w.header, store.HeaderTTL)) // was checked
		e := s.accept(w)
		b.seq = e.Seq
		if op.commit {
			s.endFast(b, m.Reply, op.id)
		} else {
			s.progressFast(b, m.Reply)
		}
		s.tell(e)
		return
	case dup > 0 && !op.commit:
		return
	case !op.gapsOK && b.last == 1:
		delete(s.fast, op.id)
		if dup > 0 {
			s.c.Reply(m.Reply, fmt.Appendf(nil, "%s%d,\"duplicate\": true,\"batch\":%q,\"count\":%d}", s.ack, dup, op.id, op.n))
		} else {
			s.refusal(m.Reply, err)
		}
		return
	case dup == 0:
		s.flow(m.Reply, server.BatchFlowErr{Sequence: op.n, Error: err})
		if op.gapsOK && !op.commit {
			return
		}
		b.last--
	}
	s.endFast(b, m.Reply, op.id)
}

// progressFast tells the sender how far the batch is, when it is time.
func (s *Stream) progressFast(b *fastBatch, reply string) {
	if b.last < b.told+b.every {
		return
	}
	b.told += (b.last - b.told) / b.every * b.every
	switch most := min(uint64(max(fastFlow/len(s.fast), 1)), b.most); {
	case b.every < most:
		b.every = min(2*b.every, most)
	case b.every > most:
		b.every = max(b.every/2, most)
	}
	s.flow(reply, server.BatchFlowAck{Sequence: b.told, Messages: uint16(b.every)})
}

// pingFast answers how far the batch is, or that something was lost on the way.
func (s *Stream) pingFast(b *fastBatch, m store.Message, op fastOp) {
	if op.n > b.last {
		s.flow(m.Reply, server.BatchFlowGap{ExpectedLastSequence: b.last + 1, CurrentSequence: op.n + 1})
		if !b.gapsOK {
			s.endFast(b, m.Reply, op.id)
			return
		}
		b.last = op.n
		told := b.told
		if s.progressFast(b, m.Reply); b.told != told {
			return
		}
	}
	s.flow(m.Reply, server.BatchFlowAck{Sequence: b.told, Messages: uint16(b.every)})
}

// endFast acknowledges what was stored of a batch.
func (s *Stream) endFast(b *fastBatch, reply, id string) {
	delete(s.fast, id)
	if reply != "" {
		s.c.Reply(reply, fmt.Appendf(nil, "%s%d,\"batch\":%q,\"count\":%d}", s.ack, b.seq, id, b.last))
	}
}

func (s *Stream) flow(reply string, what interface{ MarshalJSON() ([]byte, error) }) {
	b, _ := what.MarshalJSON() // of numbers and an error
	s.c.Reply(reply, b)
}
