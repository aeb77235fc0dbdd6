package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
)

// Letter is a dead letter as it is shown.
type Letter struct {
	Seq      uint64          `json:"seq" doc:"In the stream DEAD_LETTERS"`
	Time     time.Time       `json:"time"`
	Consumer string          `json:"consumer" doc:"Who gave it up"`
	Machine  string          `json:"machine"`
	Key      string          `json:"key"`
	Subject  string          `json:"subject" doc:"Where redrive puts it back"`
	Reason   string          `json:"reason"`
	Tries    int             `json:"tries"`
	Body     json.RawMessage `json:"body,omitempty" doc:"As it was sent; text that is no JSON is a string"`
}

// Letters is a part of the dead letters, oldest first.
type Letters struct {
	Items      []Letter `json:"items"`
	NextCursor string   `json:"nextCursor" doc:"The after= of the next page; empty at the end"`
}

// Redrive says which letters to put back: some, or all (of a machine).
type Redrive struct {
	Seqs    []uint64 `json:"seqs,omitempty" maxItems:"500" doc:"These letters"`
	All     bool     `json:"all,omitempty" doc:"All letters that there are now"`
	Machine string   `json:"machine,omitempty" maxLength:"63" doc:"With all: only those of this machine"`
}

// Redriven says what became of each letter.
type Redriven struct {
	Redriven []uint64         `json:"redriven" doc:"Put back where they came from"`
	Failed   []RedriveFailure `json:"failed" doc:"Still there, or not found"`
}

// RedriveFailure is a letter that was not put back.
type RedriveFailure struct {
	Seq    uint64 `json:"seq"`
	Detail string `json:"detail"`
}

func (s *Server) letterRoutes() []*route {
	if s.o.DeadLetters == nil {
		return nil
	}
	tags, limit := []string{"dead letters"}, number(1)
	limit.Default = defaultPage
	seq := func() *huma.Param {
		return &huma.Param{Name: "seq", In: "path", Required: true, Schema: number(1)}
	}
	redriven := map[string]*huma.Response{"200": {Description: "What became of them", Content: s.bodyOf(reflect.TypeFor[Redriven]())}}
	schema := s.registry().Schema(reflect.TypeFor[Redrive](), true, "")
	s.registry().SchemaFromRef(schema.Ref).Properties["seqs"].Items = number(1)
	return []*route{
		{role: Read, serve: (*request).letters, op: huma.Operation{
			OperationID: "list-dead-letters", Method: http.MethodGet, Path: "/v1/dead-letters", Tags: tags, Summary: "List the messages that no code could handle", Errors: []int{503},
			Parameters: []*huma.Param{query("after", "Only behind this sequence", number(0)), query("limit", "Size of the page; more than 500 is taken for 500", limit), query("machine", "Only of this machine", text(63))},
			Responses:  map[string]*huma.Response{"200": {Description: "A page", Content: s.bodyOf(reflect.TypeFor[Letters]())}},
		}},
		{role: Read, serve: (*request).letter, op: huma.Operation{
			OperationID: "get-dead-letter", Method: http.MethodGet, Path: "/v1/dead-letters/{seq}", Tags: tags, Summary: "Read one dead letter", Errors: []int{404, 503},
			Parameters: []*huma.Param{seq()}, Responses: map[string]*huma.Response{"200": {Description: "The letter", Content: s.bodyOf(reflect.TypeFor[Letter]())}},
		}},
		{role: Admin, serve: (*request).redriveOne, op: huma.Operation{
			OperationID: "redrive-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{seq}/redrive", Tags: tags, Summary: "Put one dead letter back where it came from", Errors: []int{404, 503},
			Parameters: []*huma.Param{seq()}, Responses: redriven,
		}},
		{role: Admin, serve: func(q *request) error { return q.redriveMany(schema) }, op: huma.Operation{
			OperationID: "redrive-dead-letters", Method: http.MethodPost, Path: "/v1/dead-letters/redrive", Tags: tags, Summary: "Put many dead letters back", Errors: []int{400, 413, 415, 422, 503},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}, Responses: redriven,
		}},
	}
}

// visible returns up to limit letters that the caller may see, and whether there may be more.
func (q *request) visible(after uint64, limit int, machine string) ([]DeadLetter, bool, error) {
	var found []DeadLetter
	for {
		page, err := q.o.DeadLetters.List(q.ctx(), after, maxPage)
		if err != nil {
			return nil, false, err
		}
		for _, l := range page {
			if after = l.Seq; !q.who.sees(l.Key) || machine != "" && machine != l.Machine {
				continue
			}
			if len(found) == limit {
				return found, true, nil
			}
			found = append(found, l)
		}
		if len(page) < maxPage {
			return found, false, nil
		}
	}
}

func (q *request) letters() error {
	found, more, err := q.visible(q.number("after"), q.limit(), q.query.Get("machine"))
	if err != nil {
		return err
	}
	out := Letters{Items: make([]Letter, 0, len(found))}
	for _, l := range found {
		out.Items = append(out.Items, letterOf(l))
	}
	if more {
		out.NextCursor = strconv.FormatUint(found[len(found)-1].Seq, 10)
	}
	return q.json(http.StatusOK, out)
}

func letterOf(l DeadLetter) Letter {
	out := Letter{Seq: l.Seq, Time: l.Time.UTC(), Consumer: l.Consumer, Machine: l.Machine, Key: l.Key, Subject: l.Subject, Reason: l.Reason, Tries: l.Tries, Body: l.Body}
	if len(l.Body) == 0 {
		out.Body = nil
	} else if !json.Valid(l.Body) {
		out.Body, _ = json.Marshal(string(l.Body)) // strings always marshal
	}
	return out
}

// oneLetter reads the letter that the path names, if the caller may see it.
func (q *request) oneLetter() (DeadLetter, error) {
	seq, err := strconv.ParseUint(q.path("seq"), 10, 64)
	if err != nil || seq == 0 {
		return DeadLetter{}, invalid("path.seq", "expected integer >= 1")
	}
	l, err := q.o.DeadLetters.Get(q.ctx(), seq)
	if errors.Is(err, ErrNoLetter) || err == nil && !q.who.sees(l.Key) {
		return DeadLetter{}, problem(machines.CodeNotFound, "there is no such dead letter")
	}
	return l, err
}

func (q *request) letter() error {
	l, err := q.oneLetter()
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, letterOf(l))
}

func (q *request) redriveOne() error {
	if _, err := q.body(nil); err != nil {
		return err
	}
	l, err := q.oneLetter()
	if err != nil {
		return err
	}
	out := q.redrive([]DeadLetter{l})
	if len(out.Failed) > 0 {
		return unavailable("the letter could not be put back: " + out.Failed[0].Detail)
	}
	return q.json(http.StatusOK, out)
}

func (q *request) redriveMany(schema *huma.Schema) error {
	raw, p := q.body(schema)
	if p != nil {
		return p
	}
	var want Redrive
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &want); err != nil {
			return invalid("body", "has a number that is too large")
		}
	}
	if want.All == (len(want.Seqs) > 0) || want.Machine != "" && !want.All {
		return invalid("body", "must have either seqs, or all and perhaps machine")
	}
	if want.All {
		found, _, err := q.visible(0, maxRedrive, want.Machine)
		if err != nil {
			return err
		}
		return q.json(http.StatusOK, q.redrive(found))
	}
	var letters []DeadLetter
	missing := []RedriveFailure{}
	for _, seq := range want.Seqs {
		l, err := q.o.DeadLetters.Get(q.ctx(), seq)
		switch {
		case errors.Is(err, ErrNoLetter), err == nil && !q.who.sees(l.Key):
			missing = append(missing, RedriveFailure{seq, "there is no such dead letter"})
		case err != nil:
			return err
		default:
			letters = append(letters, l)
		}
	}
	out := q.redrive(letters)
	out.Failed = append(missing, out.Failed...)
	return q.json(http.StatusOK, out)
}

// maxRedrive bounds what one request puts back; another request goes on.
const maxRedrive = 10000

func (q *request) redrive(letters []DeadLetter) Redriven {
	out := Redriven{Redriven: []uint64{}, Failed: []RedriveFailure{}}
	for _, l := range letters {
		err := q.o.DeadLetters.Redrive(q.ctx(), l.Seq)
		if err == nil {
			out.Redriven = append(out.Redriven, l.Seq)
			continue
		}
		detail := "storage does not answer"
		if errors.Is(err, ErrNoLetter) {
			detail = "there is no such dead letter"
		} else {
			q.o.Log.Warn("a dead letter could not be put back", "request", q.id, "sequence", l.Seq, "error", err)
		}
		out.Failed = append(out.Failed, RedriveFailure{l.Seq, detail})
	}
	if len(letters) > 0 {
		q.o.Log.Info("dead letters were put back", "request", q.id, "actor", q.who.name, "redriven", len(out.Redriven), "failed", len(out.Failed))
	}
	return out
}
