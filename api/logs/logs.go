// Package logs has the log lines of entities as server-sent events: the last ones of each, which the stream of logs keeps, and those that come. The id of an event is its sequence in the
// stream, so one position is behind the lines of all.
package logs

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Line is one line of a log.
type Line struct {
	Task    string    `json:"task,omitempty"` // <namespace>.<repository>.<task>, where those of several tasks are followed
	At      time.Time `json:"at"`
	Attempt string    `json:"attempt,omitempty"` // that has written it; of an instance the release
	Line    string    `json:"line"`
}

// Followed are the logs that somebody follows, by subject.
type Followed map[string]Log

// Log is one that is followed.
type Log struct {
	Task  string // named in each line, if not empty
	After uint64 // position behind which its lines are wanted
}

// Reader reads logs.
type Reader struct {
	Rest  *rest.Server
	JS    jetstream.JetStream
	Names streams.Names
}

// Follow sends lines until the client goes, or those that are kept are sent.
func (r *Reader) Follow(q *rest.Request, logs Followed, goOn bool) error {
	last := uint64(0)
	if text := q.R.Header.Get("Last-Event-ID"); text != "" {
		var err error
		if last, err = strconv.ParseUint(text, 10, 64); err != nil {
			return problem.Invalid("header.Last-Event-ID", "is not an id of this stream")
		}
	}
	leave, err := q.TakeWatch()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	defer context.AfterFunc(r.Rest.Closing(), cancel)()
	consumer, err := r.JS.OrderedConsumer(ctx, r.Names.Stream(streams.LogStream), logs.consumer(last))
	if err != nil {
		return err
	}
	there := consumer.CachedInfo().NumPending
	lines, err := consumer.Messages() // one consumer for all of them: each Next of an ordered one would make another
	if err != nil {
		return err
	}
	defer lines.Stop()
	defer context.AfterFunc(ctx, lines.Stop)()
	w := sse.New(q.W)
	if q.R.Method == http.MethodHead {
		return nil
	}
	for w.Err == nil && ctx.Err() == nil {
		if !goOn && there == 0 {
			w.Notice("end", "these are the lines that are kept")
			return nil
		}
		m, err := lines.Next(jetstream.NextMaxWait(sse.Heartbeat))
		switch {
		case errors.Is(err, nats.ErrTimeout):
			w.Comment()
			w.Flush()
			continue
		case err != nil:
			w.Notice("end", "the log cannot be read now; come back")
			return nil
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil
		}
		there = meta.NumPending
		if of := logs[m.Subject()]; meta.Sequence.Stream > max(of.After, last) {
			w.Send("log", strconv.FormatUint(meta.Sequence.Stream, 10), Line{Task: of.Task, At: meta.Timestamp, Attempt: m.Headers().Get(streams.HeaderAttempt), Line: string(m.Data())})
		}
		if there == 0 {
			w.Flush()
		}
	}
	return nil
}

// consumer begins where the first of the logs does: lines of the others that are known already are left out.
func (f Followed) consumer(last uint64) jetstream.OrderedConsumerConfig {
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	first := ^uint64(0)
	for subject, of := range f {
		config.FilterSubjects = append(config.FilterSubjects, subject)
		first = min(first, max(of.After, last))
	}
	if first > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, first+1
	}
	return config
}

// Route reads the log of one entity of a machine whose entities have a parent, below base.
func (r *Reader) Route(m *machines.Machine, base string, store *entities.Store) *rest.Route {
	serve := func(q *rest.Request) error {
		_, key, err := q.Key(m)
		if err == nil {
			_, err = store.Load(q, m, key)
		}
		if err != nil {
			return err
		}
		return r.Follow(q, Followed{r.Names.Log(m.Name, key): {}}, q.Query.Get("follow") != "false")
	}
	return &rest.Route{Role: auth.Read, Serve: serve, Op: huma.Operation{
		OperationID: m.Name + "-logs", Method: http.MethodGet, Path: base + "/{id}/logs", Tags: []string{m.Name}, Summary: "Log lines of one " + m.Name + ", as they are written",
		Description: "Server-sent events of the type log: the lines that are kept, then those that come. The id of an event continues behind it. Only the last lines are kept.",
		Errors:      []int{404, 422, 429, 503},
		Parameters:  []*huma.Param{rest.NamespaceParam(), rest.QueryParam("follow", "Go on with what comes; true by default", rest.Boolean()), rest.HeaderParam("Last-Event-ID", "Continue after this event", "17")},
		Responses:   map[string]*huma.Response{"200": {Description: "The lines", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}}
}
