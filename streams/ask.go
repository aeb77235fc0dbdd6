package streams

// Questions to the leader of a stream in one request, where package jetstream would look the stream up first, a round trip more. Last, LastHeld, LastIfHeld, Info and ConsumerLed
// change nothing, and are asked again until a leader answers (ask): kv, the engine and package reconcile read through them while leaders move. Of each stream a connection has
// so many questions under way and no more (enquire): each waits for its place, up to half a minute, and for its answer ten seconds more. Purge, and Subjects, whose list may be long, are asked once. Answers come back decoded; a refusal is a jetstream.APIError.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ReadWithin is how long one question waits for its answer where it is put again by other means. A stream whose server has died answers nothing until another one leads.
const ReadWithin = 1500 * time.Millisecond

// messageWithin is how long it has to read a message: as long as an election takes, or a peak of load. A partition that gives up drops its memory, and has everything to read again.
const messageWithin = 10 * time.Second

// A stream has atOnce questions of a connection before it at a time. A server answers questions to all streams from one queue, with up to 16 at a time, and requests for INFO behind the
// others, so more are not answered sooner: they come again. The others wait until then, for placeWithin: where the leader is away, those before them take their ten seconds each.
const atOnce, placeWithin = 48, 3 * messageWithin

// Message is a message as its stream has stored it.
type Message struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs"` // as on the wire
	Data     []byte    `json:"data"`
	Time     time.Time `json:"time"`
}

// Headers are those of the message. They are empty when it has none, or none that can be read.
func (m *Message) Headers() nats.Header {
	h, _ := nats.DecodeHeadersMsg(m.Header) // nil where it fails
	return h
}

// Last reads the last message under a subject, which may have wildcards, from the stream's leader, in one round trip. It is nil when there is none.
func Last(ctx context.Context, nc *nats.Conn, stream, subject string) (*Message, error) {
	var answer struct {
		answered
		Message *Message `json:"message"`
	}
	err := enquire(ctx, nc, "MSG.GET", stream, map[string]string{"last_by_subj": subject}, &answer)
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case answer.Message == nil:
		return nil, errors.New("the stream's answer has no message")
	}
	return answer.Message, nil
}

// LastHeld is [Last] for what must not be taken for absent: a leader also says that there is no message when it cannot read it. Then it fails with [ErrUnreadable].
func LastHeld(ctx context.Context, nc *nats.Conn, stream, subject string) (*Message, error) {
	m, err := Last(ctx, nc, stream, subject)
	if m != nil || err != nil {
		return m, err
	}
	return LastIfHeld(ctx, nc, stream, subject)
}

// LastIfHeld is [LastHeld] for what is rarely there: a subject that the stream does not list is not read.
func LastIfHeld(ctx context.Context, nc *nats.Conn, stream, subject string) (*Message, error) {
	held, _, err := subjects(ctx, enquire, nc, stream, subject, 0)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	m, err := Last(ctx, nc, stream, subject)
	if m == nil && err == nil {
		err = ErrUnreadable
	}
	return m, err
}

// Info is what a stream's leader says of it.
func Info(ctx context.Context, nc *nats.Conn, stream string) (*jetstream.StreamInfo, error) {
	var answer struct {
		answered
		jetstream.StreamInfo
	}
	if err := enquire(ctx, nc, "INFO", stream, struct{}{}, &answer); err != nil {
		return nil, err
	}
	return &answer.StreamInfo, nil
}

// Subjects are those that a stream holds messages under, of those under a filter, from an offset on, and how many there are in all; the
// server gives up to 100,000 at once. One whose messages the leader cannot read is among them.
func Subjects(ctx context.Context, nc *nats.Conn, stream, filter string, offset int) (map[string]uint64, int, error) {
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	return subjects(ctx, request, nc, stream, filter, offset)
}

// Purge removes what a stream has under a filter, up to a sequence. It fails with a [jetstream.APIError] when the stream refuses; any other
// error leaves open whether it has happened, also that nobody has answered within ten seconds.
func Purge(ctx context.Context, nc *nats.Conn, stream, filter string, upTo uint64) error {
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	return request(ctx, nc, "PURGE", stream, map[string]any{"filter": filter, "seq": upTo + 1}, new(answered)) // without it
}

// ConsumerLed waits until the leader of a consumer answers, even if it answers that there is no such consumer. It fails when none has answered within ten seconds.
func ConsumerLed(ctx context.Context, nc *nats.Conn, stream, consumer string) error {
	ctx, cancel := context.WithTimeout(ctx, messageWithin)
	defer cancel()
	_, err := new(questions).ask(ctx, nc, &nats.Msg{Subject: "$JS.API.CONSUMER.INFO." + stream + "." + consumer})
	return err
}

// answered is the part that all answers of a stream's API have.
type answered struct {
	Error *jetstream.APIError `json:"error"`
}

func (a *answered) refusal() *jetstream.APIError { return a.Error }

type refusing interface{ refusal() *jetstream.APIError }

// asker is request or enquire.
type asker func(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error

// request asks a stream's leader, once. It fails with a [jetstream.APIError] when the stream refuses.
func request(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error {
	return requestBy(ctx, nc.RequestMsgWithContext, verb, stream, body, into)
}

var places sync.Map // questions to each stream, by the connection and the stream's name

// questions are those of a connection to a stream.
type questions struct {
	places chan struct{}             // each held while a question is under way
	heard  atomic.Pointer[time.Time] // when its leader answered any of them the last time
}

// enquire is request for what changes nothing: without an answer it asks again. It waits for its place, and has ten seconds from then on.
func enquire(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error {
	by := [2]any{weak.Make(nc), stream}
	of, known := places.LoadOrStore(by, &questions{places: make(chan struct{}, atOnce)})
	if !known { // they go with the connection
		runtime.AddCleanup(nc, places.Delete, any(by))
	}
	q := of.(*questions)
	queue, cancel := context.WithTimeout(ctx, placeWithin)
	defer cancel()
	select {
	case q.places <- struct{}{}:
		defer func() { <-q.places }()
	case <-queue.Done():
		return fmt.Errorf("stream %s: %d questions before this one have had no answer: %w", stream, atOnce, queue.Err())
	}
	ctx, cancel = context.WithTimeout(ctx, messageWithin)
	defer cancel()
	return requestBy(ctx, func(ctx context.Context, m *nats.Msg) (*nats.Msg, error) { return q.ask(ctx, nc, m) }, verb, stream, body, into)
}

// subjects is [Subjects], by one asker. A list that may be long is to be asked for by request: asking again makes the server start over, and everybody else wait.
func subjects(ctx context.Context, by asker, nc *nats.Conn, stream, filter string, offset int) (map[string]uint64, int, error) {
	var answer struct {
		answered
		Total int `json:"total"`
		State struct {
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	err := by(ctx, nc, "INFO", stream, map[string]any{"subjects_filter": filter, "offset": offset}, &answer)
	return answer.State.Subjects, answer.Total, err
}

func requestBy(ctx context.Context, by func(context.Context, *nats.Msg) (*nats.Msg, error), verb, stream string, body any, into refusing) error {
	req, err := json.Marshal(body)
	if err != nil {
		return err
	}
	m, err := by(ctx, &nats.Msg{Subject: "$JS.API.STREAM." + verb + "." + stream, Data: req})
	if err != nil {
		return err
	}
	if Leaderless(m.Data) {
		return ErrLeaderless
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return fmt.Errorf("cannot read the stream's answer: %w", err)
	}
	if refused := into.refusal(); refused != nil {
		return refused
	}
	return nil
}

// A question without an answer is put again after askEvery, then after twice as long each time, at last every askSlowest: a leader that has died does not answer, nor does its successor
// what was asked before. But one that has answered anything since it was put is only slow, and has to handle each copy: it is left alone for slowWithin. Its first answer is taken.
const askEvery, askSlowest, slowWithin = 250 * time.Millisecond, time.Second, 3 * time.Second

// ask puts a question that changes nothing, and puts it again until a leader answers or ctx ends.
func (q *questions) ask(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	type reply struct {
		*nats.Msg
		error
	}
	replies := make(chan reply, messageWithin/askSlowest+3) // of all that can be put in that time
	wait, due := askEvery, time.NewTimer(askEvery)
	defer due.Stop()
	for {
		put := time.Now()
		go func() {
			answer, err := nc.RequestMsgWithContext(ctx, m)
			replies <- reply{answer, err}
		}()
		for again := false; !again; {
			select {
			case r := <-replies:
				switch now := time.Now(); {
				case r.error == nil && !Leaderless(r.Data):
					q.heard.Store(&now)
					return r.Msg, nil
				case r.error != nil && ctx.Err() == nil && !errors.Is(r.error, nats.ErrNoResponders):
					return nil, r.error
				}
			case <-due.C:
				heard := q.heard.Load()
				again = heard == nil || heard.Before(put) || time.Since(put) >= slowWithin
				wait = min(2*wait, askSlowest)
				due.Reset(wait)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}
