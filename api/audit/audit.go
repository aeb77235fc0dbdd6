// Package audit is the route that reads the records of changes (streams/audit), by tenant, actor, resource and time, as they were written.
package audit

// GET /v1/audit: parse reads what is asked for, page reads the chains of the classes and merges what they have by time.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

// Log has the records. Use [New].
type Log struct {
	js    jetstream.JetStream
	names streams.Names
}

// New makes the routes over the streams of an installation.
func New(js jetstream.JetStream, names streams.Names) *Log { return &Log{js, names} }

// Records is a part of the records, oldest first.
type Records struct {
	Items      []audit.Record            `json:"items" nullable:"false"`
	NextCursor string                    `json:"nextCursor" doc:"Pass it as after= to read on; empty on the last page. A page may have fewer records than asked for, and others may follow"`
	Ends       map[string]audit.ChainEnd `json:"ends,omitempty" doc:"Where the chain of each class ends, and how long its records are kept; not told to a token of one namespace, which sees only parts of the chains"`
}

// written is a page with the records as they were written, or their hashes would be those of other texts.
type written struct {
	Items      []json.RawMessage         `json:"items"`
	NextCursor string                    `json:"nextCursor"`
	Ends       map[string]audit.ChainEnd `json:"ends,omitempty"`
}

// Routes are the operations.
func (l *Log) Routes(r *rest.Router) []*rest.Route {
	moment := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "date-time"} }
	return []*rest.Route{{Role: auth.Read, Serve: l.list, Op: huma.Operation{
		OperationID: "list-audit", Method: http.MethodGet, Path: "/v1/audit", Tags: []string{"audit"}, Summary: "Read the audit", Errors: []int{422, 503},
		Description: "One record for each change of a tenant's database, and for each that failed, oldest first. The records of a class are a chain: each has the hash of the one before it.",
		Parameters: []*huma.Param{
			rest.QueryParam("after", "The nextCursor of the page before: sequences by class, such as state-17.error-3", rest.Text(200)), rest.LimitParam(),
			rest.QueryParam("namespace", "Only of sessions of this namespace; all that the token sees without it, or for *", rest.Text(63)), rest.QueryParam("tenant", "Only of this tenant", rest.Text(63)), rest.QueryParam("actor", "Only of this actor, by its id or type", rest.Text(256)),
			rest.QueryParam("resource", "Only about this resource, by its type or id", rest.Text(256)), rest.QueryParam("class", "Only of this class", &huma.Schema{Type: huma.TypeString, Enum: anyOf(streams.Classes)}),
			rest.QueryParam("since", "Only what has happened then or later", moment()), rest.QueryParam("until", "Only what has happened before", moment()),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A page", Content: r.BodyOf(reflect.TypeFor[Records]())}},
	}}}
}

func anyOf(words []string) []any {
	var all []any
	for _, w := range words {
		all = append(all, w)
	}
	return all
}

// wanted is what a request asks for.
type wanted struct {
	after                   map[string]uint64
	tenant, actor, resource string
	namespace               string // empty is all
	classes                 []string
	since, until            time.Time
	who                     auth.Identity
}

func parse(q *rest.Request) (w wanted, err error) {
	w = wanted{after: map[string]uint64{}, tenant: q.Query.Get("tenant"), actor: q.Query.Get("actor"), resource: q.Query.Get("resource"), classes: streams.Classes, who: q.Who}
	if class := q.Query.Get("class"); class != "" {
		w.classes = []string{class}
	}
	if asked := q.Query.Get("namespace"); asked != "" {
		ns, p := q.Who.Resolve(asked, true)
		if p != nil {
			return w, p
		}
		w.namespace = ns
	}
	if w.tenant != "" && streams.CheckLabel(w.tenant) != nil {
		return w, problem.Invalid("query.tenant", problem.LabelRule)
	}
	for name, to := range map[string]*time.Time{"since": &w.since, "until": &w.until} {
		if text := q.Query.Get(name); text != "" {
			if *to, err = time.Parse(time.RFC3339, text); err != nil {
				return w, problem.Invalid("query."+name, "is no time such as 2026-01-31T12:00:00Z")
			}
		}
	}
	for part := range strings.SplitSeq(q.Query.Get("after"), ".") {
		if part == "" {
			continue
		}
		class, text, _ := strings.Cut(part, "-")
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil || !slices.Contains(streams.Classes, class) {
			return w, problem.Invalid("query.after", "is no cursor of a page")
		}
		w.after[class] = seq
	}
	return w, nil
}

// holds reports whether a record is asked for.
func (w *wanted) holds(r *audit.Record) bool {
	return (w.actor == "" || w.actor == r.Actor.ID || w.actor == r.Actor.Type) &&
		(w.resource == "" || r.Resource != nil && (w.resource == r.Resource.ID || w.resource == r.Resource.Type)) &&
		(w.namespace == "" || strings.HasPrefix(r.Target.SessionID, w.namespace+".")) &&
		!r.Timestamp.Before(w.since) && (w.until.IsZero() || r.Timestamp.Before(w.until)) && w.who.Sees(r.Target.SessionID)
}

func (l *Log) list(q *rest.Request) error {
	w, err := parse(q)
	if err != nil {
		return err
	}
	var page *written
	if err := q.InTurn(func() (err error) {
		ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
		defer cancel()
		page, err = l.page(ctx, w, q.PageSize())
		return err
	}); err != nil {
		return err
	}
	return q.JSON(http.StatusOK, page)
}

// page reads up to limit records of each class, and has the oldest of them.
func (l *Log) page(ctx context.Context, w wanted, limit int) (*written, error) {
	out := &written{Items: []json.RawMessage{}, Ends: map[string]audit.ChainEnd{}}
	var chains [][]audit.Line
	more := false
	for _, class := range w.classes {
		some, end, behind, err := audit.Read(ctx, l.js, l.names, audit.Part{Class: class, After: w.after[class], Since: w.since, Tenant: w.tenant, Limit: limit})
		if err != nil {
			return nil, fmt.Errorf("cannot read the audit of class %s: %w", class, err)
		}
		chains, more, out.Ends[class] = append(chains, some), more || behind, end
	}
	if w.who.Namespace != auth.AnyNamespace {
		out.Ends = nil
	}
	all := merge(chains)
	if len(all) > limit {
		all, more = all[:limit], true
	}
	for i := range all {
		r := &all[i]
		w.after[r.Class] = r.At
		if w.holds(&r.Record) {
			out.Items = append(out.Items, r.Text)
		}
	}
	if more {
		var parts []string
		for _, class := range streams.Classes {
			if seq, ok := w.after[class]; ok {
				parts = append(parts, class+"-"+strconv.FormatUint(seq, 10))
			}
		}
		out.NextCursor = strings.Join(parts, ".")
	}
	return out, nil
}

// merge is what some chains have, by the time when it was recorded. Those of a chain stay in their order, whatever times they say: `after` is up to where a client has a chain.
func merge(chains [][]audit.Line) (all []audit.Line) {
	for {
		var next *[]audit.Line
		for i := range chains {
			if c := chains[i]; len(c) > 0 && (next == nil || c[0].Record.RecordedAt.Before((*next)[0].Record.RecordedAt)) {
				next = &chains[i]
			}
		}
		if next == nil {
			return all
		}
		all, *next = append(all, (*next)[0]), (*next)[1:]
	}
}
