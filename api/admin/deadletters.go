package admin

// The routes under /v1/dead-letters: list, read, redrive many; mended.go has those to redrive one, perhaps edited, and to drop some, settled.go who has done so. They call the interface DeadLetters, which the server
// implements over the stream DEAD_LETTERS (streams/publish), leave out letters of namespaces that the token may not see, and
// answer with Letters or Redriven. Reads take turns with what else the client asks for; a list is read in pieces, one turn each.

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Letter is a dead letter as it is shown.
type Letter struct {
	Seq      uint64          `json:"seq" doc:"In the stream DEAD_LETTERS"`
	Time     time.Time       `json:"time"`
	Consumer string          `json:"consumer" doc:"Consumer that gave up on it"`
	Machine  string          `json:"machine"`
	Key      string          `json:"key"`
	Subject  string          `json:"subject" doc:"Subject that redrive publishes it to"`
	Reason   string          `json:"reason"`
	Tries    int             `json:"tries"`
	Body     json.RawMessage `json:"body,omitempty" doc:"Body of the message; a string if it is not JSON"`
}

// Letters is a part of the dead letters, oldest first.
type Letters struct {
	Items      []Letter `json:"items"`
	NextCursor string   `json:"nextCursor" doc:"Pass it as after= to read the next page; empty on the last page"`
}

// Redrive says which letters to redrive: those of some sequences, or all (of a machine).
type Redrive struct {
	Seqs    []uint64 `json:"seqs,omitempty" maxItems:"500" doc:"Sequences of the dead letters"`
	All     bool     `json:"all,omitempty" doc:"All dead letters stored at the time of the request"`
	Machine string   `json:"machine,omitempty" maxLength:"63" doc:"With all: only dead letters of this machine"`
	Reason  string   `json:"reason,omitempty" maxLength:"1024" doc:"Why; it is recorded with what was redriven"`
}

// Redriven says what became of each letter.
type Redriven struct {
	Redriven []uint64         `json:"redriven" doc:"Sequences that were published to their subjects again"`
	Failed   []RedriveFailure `json:"failed" doc:"Dead letters that were not redriven: still stored, or not found"`
}

// RedriveFailure is a letter that was not put back.
type RedriveFailure struct {
	Seq    uint64 `json:"seq"`
	Detail string `json:"detail"`
}

func (s *Service) letterRoutes(r *rest.Router) []*rest.Route {
	if s.o.DeadLetters == nil {
		return nil
	}
	tags := []string{"dead letters"}
	seq := func() *huma.Param {
		return &huma.Param{Name: "seq", In: "path", Required: true, Schema: rest.Number(1)}
	}
	redriven := map[string]*huma.Response{"200": {Description: "Redriven and failed dead letters", Content: r.BodyOf(reflect.TypeFor[Redriven]())}}
	schema := r.Registry().Schema(reflect.TypeFor[Redrive](), true, "")
	r.Registry().SchemaFromRef(schema.Ref).Properties["seqs"].Items = rest.Number(1)
	return []*rest.Route{
		{Role: auth.Read, Serve: s.letters, Op: huma.Operation{
			OperationID: "list-dead-letters", Method: http.MethodGet, Path: "/v1/dead-letters", Tags: tags, Summary: "List dead letters", Errors: []int{503},
			Parameters: []*huma.Param{rest.QueryParam("after", "Only behind this sequence", rest.Number(0)), rest.LimitParam(), rest.QueryParam("machine", "Only of this machine", rest.Text(63))},
			Responses:  map[string]*huma.Response{"200": {Description: "A page", Content: r.BodyOf(reflect.TypeFor[Letters]())}},
		}},
		{Role: auth.Read, Serve: s.letter, Op: huma.Operation{
			OperationID: "get-dead-letter", Method: http.MethodGet, Path: "/v1/dead-letters/{seq}", Tags: tags, Summary: "Read one dead letter", Errors: []int{404, 503},
			Parameters: []*huma.Param{seq()}, Responses: map[string]*huma.Response{"200": {Description: "The dead letter", Content: r.BodyOf(reflect.TypeFor[Letter]())}},
		}},
		s.redriveRoute(r, tags, seq(), redriven), s.dropRoute(r, tags), s.settledRoute(r, tags),
		{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.redriveMany(q, schema) }, Op: huma.Operation{
			OperationID: "redrive-dead-letters", Method: http.MethodPost, Path: "/v1/dead-letters/redrive", Tags: tags, Summary: "Redrive many dead letters", Errors: []int{400, 413, 415, 422, 503},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}, Responses: redriven,
		}},
	}
}

// lettersInTurn is how many letters are read in one turn of a client.
const lettersInTurn = 50

// visible returns up to limit letters that the caller may see, and whether there may be more.
func (s *Service) visible(q *rest.Request, after uint64, limit int, machine string) ([]DeadLetter, bool, error) {
	var found []DeadLetter
	for {
		var page []DeadLetter
		if err := q.InTurn(func() (err error) {
			page, err = s.o.DeadLetters.List(q.Context(), after, lettersInTurn)
			return err
		}); err != nil {
			return nil, false, err
		}
		for _, l := range page {
			if after = l.Seq; !sees(q, l) || machine != "" && machine != l.Machine {
				continue
			}
			if len(found) == limit {
				return found, true, nil
			}
			found = append(found, l)
		}
		if len(page) < lettersInTurn {
			return found, false, nil
		}
	}
}

// sees reports whether the caller may see a letter. One that names no entity may be of any namespace, and is for who sees all of them.
func sees(q *rest.Request, l DeadLetter) bool {
	if _, _, _, err := streams.SplitKey(l.Key); err != nil || l.Machine == unaddressed && l.Key == unaddressed+"."+unaddressed {
		return q.Who.Namespace == auth.AnyNamespace
	}
	return q.Who.Sees(l.Key)
}

// unaddressed is the machine, namespace and id of a letter that names no entity; see [publish.DeadLetters.Message].
const unaddressed = "unknown"

// read reads one letter in the turn of the client. One that the caller may not see is [ErrNoLetter], too.
func (s *Service) read(q *rest.Request, seq uint64) (l DeadLetter, err error) {
	err = q.InTurn(func() (err error) {
		l, err = s.o.DeadLetters.Get(q.Context(), seq)
		return err
	})
	if err == nil && !sees(q, l) {
		return DeadLetter{}, ErrNoLetter
	}
	return l, err
}

func (s *Service) letters(q *rest.Request) error {
	found, more, err := s.visible(q, q.Number("after"), q.PageSize(), q.Query.Get("machine"))
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
	return q.JSON(http.StatusOK, out)
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
func (s *Service) oneLetter(q *rest.Request) (DeadLetter, error) {
	seq, err := strconv.ParseUint(q.PathValue("seq"), 10, 64)
	if err != nil || seq == 0 {
		return DeadLetter{}, problem.Invalid("path.seq", "expected integer >= 1")
	}
	l, err := s.read(q, seq)
	if errors.Is(err, ErrNoLetter) {
		return DeadLetter{}, problem.New(machines.CodeNotFound, "there is no such dead letter")
	}
	return l, err
}

func (s *Service) letter(q *rest.Request) error {
	l, err := s.oneLetter(q)
	if err != nil {
		return err
	}
	return q.JSON(http.StatusOK, letterOf(l))
}

func (s *Service) redriveMany(q *rest.Request, schema *huma.Schema) error {
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var want Redrive
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &want); err != nil {
			return problem.Invalid("body", "has a number that is too large")
		}
	}
	if want.All == (len(want.Seqs) > 0) || want.Machine != "" && !want.All {
		return problem.Invalid("body", "must have either seqs, or all and perhaps machine")
	}
	if !problem.Printable(want.Reason) {
		return problem.Invalid("body.reason", "must be text without control characters")
	}
	if want.All {
		found, _, err := s.visible(q, 0, maxRedrive, want.Machine)
		if err != nil {
			return err
		}
		return q.JSON(http.StatusOK, s.redrive(q, found, want.Reason))
	}
	var letters []DeadLetter
	missing := []RedriveFailure{}
	for _, seq := range want.Seqs {
		l, err := s.read(q, seq)
		switch {
		case errors.Is(err, ErrNoLetter):
			missing = append(missing, RedriveFailure{seq, "there is no such dead letter"})
		case err != nil:
			return err
		default:
			letters = append(letters, l)
		}
	}
	out := s.redrive(q, letters, want.Reason)
	out.Failed = append(missing, out.Failed...)
	return q.JSON(http.StatusOK, out)
}

// maxRedrive bounds what one request redrives; another request continues.
const maxRedrive = 10000

func (s *Service) redrive(q *rest.Request, letters []DeadLetter, why string) Redriven {
	out := Redriven{Redriven: []uint64{}, Failed: []RedriveFailure{}}
	var failed error // to record what is redriven
	for _, l := range letters {
		err := q.Context().Err() // a client that has hung up ends this between two letters
		if err == nil {
			ctx, cancel := lasting(q)
			err = s.o.DeadLetters.Redrive(ctx, l.Seq)
			cancel()
		}
		if err == nil {
			out.Redriven = append(out.Redriven, l.Seq)
			if failed == nil { // else each would be waited for
				failed = s.settle(q, l, redriven, why)
			}
			if failed != nil {
				s.unrecorded(q, l, redriven, why, failed)
			}
			continue
		}
		detail := "storage does not answer"
		if errors.Is(err, ErrNoLetter) {
			detail = "there is no such dead letter"
		} else {
			s.rest.Log.Warn("a dead letter could not be redriven", "request", q.Id, "sequence", l.Seq, "error", err)
		}
		out.Failed = append(out.Failed, RedriveFailure{l.Seq, detail})
	}
	if len(letters) > 0 {
		s.rest.Log.Info("dead letters were redriven", "request", q.Id, "actor", q.Who.Name, "reason", why, "redriven", len(out.Redriven), "failed", len(out.Failed))
	}
	return out
}

// DeadLetters are the messages that no code could handle.
type DeadLetters interface {
	// List returns up to limit letters after a sequence, oldest first.
	List(ctx context.Context, after uint64, limit int) ([]DeadLetter, error)
	// Get returns one letter, or an error that is [ErrNoLetter].
	Get(ctx context.Context, seq uint64) (DeadLetter, error)
	// Redrive publishes a letter to its subject again and removes it, or returns an error that is [ErrNoLetter].
	Redrive(ctx context.Context, seq uint64) error
	// Drop removes the letter of a sequence that was stored at that time, or returns an error that is [ErrNoLetter].
	Drop(ctx context.Context, seq uint64, at time.Time) error
}

// ErrNoLetter says that there is no dead letter of that sequence; [publish.ErrNoLetter] is it as well.
var ErrNoLetter = publish.ErrNoLetter

// DeadLetter is one of them.
type DeadLetter struct {
	Seq      uint64
	Time     time.Time
	Consumer string // that gave it up
	Machine  string
	Key      string
	Subject  string // to which a redrive publishes it
	Reason   string
	Tries    int
	Actor    string // who has sent the message; empty if that is not known
	Partial  bool   // Body, or Subject, is only the beginning
	Body     []byte

	RedriveID string // of the command that a redrive sends
}
