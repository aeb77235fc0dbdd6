package admin

// GET /v1/streams/{stream}/messages: messages reads the query and answers with a page of what a stream has (entities.Stored), which is either what comes after a sequence, or the newest.

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Bounds of one page of messages.
const (
	defaultMessages = 20
	maxMessages     = 50
	maxMessageBody  = 16 << 10 // bytes of a body that are shown
)

// opened are the streams whose messages can be read, by their names in paths.
var opened = map[string]string{"commands": streams.CommandStream, "events": streams.EventStream, "effects": streams.EffectStream, "dead-letters": streams.DeadStream}

// Message is a message as its stream has it.
type Message struct {
	Seq     uint64              `json:"seq"`
	Subject string              `json:"subject"`
	Time    time.Time           `json:"time"`
	Headers map[string][]string `json:"headers,omitempty"`
	Size    int                 `json:"sizeBytes" doc:"Of the body"`
	Body    json.RawMessage     `json:"body,omitempty" doc:"JSON as it is; anything else as a text"`
	Cut     bool                `json:"cut,omitempty" doc:"The body is a text of the first 16 KiB"`
}

// MessageList is a page of messages, the oldest first.
type MessageList struct {
	Stream     string    `json:"stream"`
	Messages   uint64    `json:"messages" doc:"That the stream has"`
	First      uint64    `json:"firstSeq"`
	Last       uint64    `json:"lastSeq"`
	Items      []Message `json:"items" nullable:"false"`
	NextCursor string    `json:"nextCursor,omitempty" doc:"For after; absent where there are no more now"`
}

func (s *Service) messageRoutes(r *rest.Router) []*rest.Route {
	if s.o.JS == nil {
		return nil
	}
	zero, one, most := 0.0, 1.0, float64(maxMessages)
	return []*rest.Route{{Role: auth.Admin, Serve: s.messages, Op: huma.Operation{
		OperationID: "list-messages", Method: http.MethodGet, Path: "/v1/streams/{stream}/messages", Tags: []string{"server"}, Summary: "Read messages of a stream", Errors: []int{404},
		Description: "Of commands, events, effects or dead-letters, as they are stored, for admins of all namespaces. Nothing is consumed, and no consumer is made.",
		Parameters: []*huma.Param{
			rest.QueryParam("subject", "Only these; * stands for one part of a subject, and a last > for all that follow", rest.Text(256)),
			rest.QueryParam("after", "Only what has a higher sequence. Without it: the newest of the stream or, with subject, the oldest", &huma.Schema{Type: huma.TypeInteger, Minimum: &zero}),
			rest.QueryParam("limit", "How many at most, 20 when it is not said", &huma.Schema{Type: huma.TypeInteger, Minimum: &one, Maximum: &most}),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A page of messages", Content: r.BodyOf(reflect.TypeFor[MessageList]())}},
	}}}
}

func (s *Service) messages(q *rest.Request) error {
	if p := q.Who.OfAll("streams"); p != nil {
		return p
	}
	name := opened[q.PathValue("stream")]
	if name == "" {
		return problem.New(machines.CodeNotFound, "the streams that can be read are commands, events, effects and dead-letters")
	}
	subject := q.Query.Get("subject")
	if !isFilter(subject) {
		return problem.Invalid("query.subject", "is no subject: parts with dots between them, each a text without blanks, * or a last >")
	}
	var of jetstream.Stream
	if err := q.InTurn(func() (err error) {
		of, err = s.o.JS.Stream(q.Context(), s.store.Names.Stream(name))
		return err
	}); err != nil {
		return err
	}
	state := of.CachedInfo().State
	out := MessageList{Stream: of.CachedInfo().Config.Name, Messages: state.Msgs, First: state.FirstSeq, Last: state.LastSeq, Items: []Message{}}
	limit := defaultMessages
	if n := q.Number("limit"); n > 0 {
		limit = int(n)
	}
	from := &entities.Stored{Asker: q, Of: of, Subject: cmp.Or(subject, ">"), Last: state.LastSeq}
	if q.Query.Has("after") || subject != "" {
		var err error
		if out.Items, out.NextCursor, err = after(from, max(q.Number("after")+1, state.FirstSeq), limit); err != nil {
			return err
		}
		return q.JSON(http.StatusOK, out)
	}
	newest, err := from.Newest(limit)
	if err != nil {
		return err
	}
	for _, m := range newest {
		out.Items = append(out.Items, messageOf(m))
	}
	return q.JSON(http.StatusOK, out)
}

// after is a page of what a request asks for from a sequence on, and the cursor of the next one.
func after(from *entities.Stored, seq uint64, limit int) (page []Message, cursor string, err error) {
	page = []Message{}
	for seq <= from.Last {
		if len(page) == limit {
			return page, strconv.FormatUint(seq-1, 10), nil
		}
		m, err := from.At(seq, from.Last)
		if m == nil || err != nil {
			return page, "", err
		}
		page = append(page, messageOf(m))
		seq = m.Sequence + 1
	}
	return page, "", nil
}

func messageOf(m *jetstream.RawStreamMsg) Message {
	out := Message{Seq: m.Sequence, Subject: m.Subject, Time: m.Time.UTC(), Headers: m.Header, Size: len(m.Data)}
	body := m.Data
	if out.Cut = len(body) > maxMessageBody; out.Cut {
		body = body[:maxMessageBody]
	}
	switch {
	case len(body) == 0:
	case !out.Cut && json.Valid(body):
		out.Body = body
	default:
		out.Body, _ = json.Marshal(strings.ToValidUTF8(string(body), string(utf8.RuneError))) // strings always marshal
	}
	return out
}

// isFilter reports whether a text can be the filter of a subject; none is one.
func isFilter(subject string) bool {
	parts := strings.Split(subject, ".")
	return subject == "" || streams.Storable(subject) && !strings.Contains(subject, "\x00") &&
		!slices.ContainsFunc(parts, func(part string) bool { return len(part) > 1 && strings.ContainsAny(part, "*>") }) && !slices.Contains(parts[:len(parts)-1], ">")
}
