package tasks

// Log lines as server-sent events: those of one task (GET /v1/tasks/{id}/logs), or of several over one connection (GET /v1/logs), as a browser needs that shows some in several tabs. Both are one
// consumer (follow). The id of an event is its sequence in the stream of all logs, so one position is behind the lines of all tasks.

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
)

// mostLogs is how many logs one connection follows.
const mostLogs = 64

// Line is one line of a log.
type Line struct {
	Task    string    `json:"task,omitempty"` // <namespace>.<repository>.<task>, where several are followed
	At      time.Time `json:"at"`
	Attempt string    `json:"attempt,omitempty"`
	Line    string    `json:"line"`
}

func (s *Service) logsRoute() *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.logs, Op: huma.Operation{
		OperationID: "tasks-logs", Method: http.MethodGet, Path: "/v1/tasks/{id}/logs", Tags: tags, Summary: "Log lines of a task, as they are written",
		Description: "Server-sent events of the type log: the lines that are kept, then those that come. The id of an event continues behind it. Only the last lines of a task are kept.",
		Errors:      []int{404, 422, 429, 503},
		Parameters: []*huma.Param{
			taskParam(), rest.NamespaceParam(), repositoryParam(), rest.QueryParam("follow", "Go on with what comes; true by default", rest.Boolean()), rest.HeaderParam("Last-Event-ID", "Continue after this event", "17"),
		},
		Responses: map[string]*huma.Response{"200": {Description: "The lines", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}}
}

func (s *Service) allLogsRoute() *rest.Route {
	of := rest.QueryParam("task", "<namespace>.<repository>.<task> (without a namespace, that of the token), and with a colon behind it the id of the event after which its lines are wanted; up to 64", &huma.Schema{Type: huma.TypeArray, Items: rest.Text(256), MaxItems: new(mostLogs)})
	of.Example = []string{"default.shop.lint:17"}
	return &rest.Route{Role: auth.Read, Serve: s.allLogs, Op: huma.Operation{
		OperationID: "logs", Method: http.MethodGet, Path: "/v1/logs", Tags: tags, Summary: "Log lines of several tasks over one connection",
		Description: "Server-sent events of the type log, each with its task: the lines that are kept, then those that come. With Last-Event-ID all continue behind that event. A task that is not there has no lines; a namespace that the token may not see is not found.",
		Errors:      []int{403, 404, 422, 429, 503},
		Parameters:  []*huma.Param{of, rest.HeaderParam("Last-Event-ID", "Continue after this event", "17")},
		Responses:   map[string]*huma.Response{"200": {Description: "The lines", Content: map[string]*huma.MediaType{"text/event-stream": {}}}},
	}}
}

// followed are the logs that somebody follows, by subject.
type followed map[string]followedLog

type followedLog struct {
	task  string // named in each line, if not empty
	after uint64
}

func (s *Service) logs(q *rest.Request) error {
	item, err := s.find(q)
	if err != nil {
		return err
	}
	return s.follow(q, followed{s.store.Names.Log(task.Machine.Name, item.Key): {}}, q.Query.Get("follow") != "false")
}

func (s *Service) allLogs(q *rest.Request) error {
	wanted := followed{}
	for _, text := range q.Values("task") {
		key, position, has := strings.Cut(text, ":")
		tokens := strings.Split(key, ".")
		if len(tokens) != 3 || !machines.IsLabel(tokens[1]) || !machines.IsLabel(tokens[2]) {
			return problem.Invalid("query.task", "must be <namespace>.<repository>.<task>, or that with :<id> behind it")
		}
		namespace, p := q.Who.Resolve(tokens[0], false)
		if p != nil {
			return p
		}
		tokens[0] = namespace
		of := followedLog{task: strings.Join(tokens, ".")}
		if has {
			var err error
			if of.after, err = strconv.ParseUint(position, 10, 64); err != nil {
				return problem.Invalid("query.task", "must have the id of an event behind the colon")
			}
		}
		wanted[s.store.Names.Log(task.Machine.Name, of.task)] = of
	}
	if len(wanted) == 0 || len(wanted) > mostLogs {
		return problem.Invalid("query.task", "must be 1 to 64")
	}
	return s.follow(q, wanted, true)
}

// follow sends lines until the client goes, or those that are kept are sent.
func (s *Service) follow(q *rest.Request, logs followed, goOn bool) error {
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
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	consumer, err := s.js.OrderedConsumer(ctx, s.store.Names.Stream(streams.LogStream), logs.consumer(last))
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
		if of := logs[m.Subject()]; meta.Sequence.Stream > max(of.after, last) {
			w.Send("log", strconv.FormatUint(meta.Sequence.Stream, 10), Line{Task: of.task, At: meta.Timestamp, Attempt: m.Headers().Get(streams.HeaderAttempt), Line: string(m.Data())})
		}
		if there == 0 {
			w.Flush()
		}
	}
	return nil
}

// consumer begins where the first of the logs does: lines of the others that are known already are left out.
func (f followed) consumer(last uint64) jetstream.OrderedConsumerConfig {
	config := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	first := ^uint64(0)
	for subject, of := range f {
		config.FilterSubjects = append(config.FilterSubjects, subject)
		first = min(first, max(of.after, last))
	}
	if first > 0 {
		config.DeliverPolicy, config.OptStartSeq = jetstream.DeliverByStartSequencePolicy, first+1
	}
	return config
}
