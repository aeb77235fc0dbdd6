package consumers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// answered is the part that all answers of a stream's API have.
type answered struct {
	Error *jetstream.APIError `json:"error"`
}

func (a *answered) refusal() *jetstream.APIError { return a.Error }

type refusing interface{ refusal() *jetstream.APIError }

// asker is request or enquire.
type asker func(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error

// request asks a stream's leader for what package jetstream offers only after a look at the stream, which is a round trip
// more. It fails with a [jetstream.APIError] when the stream refuses.
func request(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error {
	return requestBy(ctx, nc.RequestMsgWithContext, verb, stream, body, into)
}

// enquire is request for what changes nothing: without an answer it asks again.
func enquire(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into refusing) error {
	return requestBy(ctx, func(ctx context.Context, m *nats.Msg) (*nats.Msg, error) { return ask(ctx, nc, m) }, verb, stream, body, into)
}

// subjects are those that a stream holds messages under, of those under a filter, from an offset on, and how many there are in all. One
// whose messages the leader cannot read is among them. A list that may be long is to be asked for by request: to put the question again
// makes the server begin anew, and everybody else wait.
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
	if streams.Leaderless(m.Data) {
		return streams.ErrLeaderless
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return fmt.Errorf("cannot read the stream's answer: %w", err)
	}
	if refused := into.refusal(); refused != nil {
		return refused
	}
	return nil
}

// askEvery is when a question that was not answered is put again; after that, it is half as often: a leader that is slow should not
// have more to answer. A leader that has died answers nothing, and its successor nothing that was asked before: who only waits for an
// answer loses what is left of the wait. A slow leader answers more than once, and its first answer is taken.
const askEvery = 250 * time.Millisecond

// ask puts a question that changes nothing, and puts it again until a leader answers or ctx ends.
func ask(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	first, cancel := context.WithTimeout(ctx, askEvery)
	defer cancel()
	answer, err := nc.RequestMsgWithContext(first, m)
	switch {
	case err == nil && !streams.Leaderless(answer.Data):
		return answer, nil
	case ctx.Err() != nil: // err may be nil: an answer that is none came as well
		return nil, ctx.Err()
	case err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders):
		return nil, err
	}
	answers := make(chan *nats.Msg, 16)
	again := &nats.Msg{Subject: m.Subject, Reply: nc.NewInbox(), Header: m.Header, Data: m.Data}
	sub, err := nc.ChanSubscribe(again.Reply, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // without a connection there is nothing to end
	tick := time.NewTicker(2 * askEvery)
	defer tick.Stop()
	for {
		if err := nc.PublishMsg(again); err != nil {
			return nil, err
		}
		for asked := true; asked; {
			select {
			case answer := <-answers:
				if !streams.Leaderless(answer.Data) {
					return answer, nil
				}
			case <-tick.C:
				asked = false
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}
