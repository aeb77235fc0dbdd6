package api

// GET /v1/{plural}, and …/{parent}/{plural} where there are parents: lists of entities. listQuery turns the query into an index.Query, the index of
// this node answers it and says up to which revision that is complete, and each item becomes an entities.Item; with include=data the whole entities
// are read from their bucket. A cursor names the last item and the filters, and is valid for these only. micro.go lists over NATS in the same way.

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sort"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Page is a part of a list.
type Page struct {
	Items      []entities.Item `json:"items"`
	NextCursor string          `json:"nextCursor" doc:"For the next page; empty at the end"`
	Revision   uint64          `json:"revision" doc:"The page includes all writes up to this revision"`

	Stale float64 `json:"staleSeconds,omitempty" doc:"The node receives nothing from the bucket, or cannot reach the others: the page is its state of so many seconds ago"`
}

func (s *Server) listRoute(r *rest.Router, m *machines.Machine, base string) *rest.Route {
	rt := s.anyListRoute(r, m, base)
	rt.Op.OperationID, rt.Op.Summary = "list-"+m.Name, "List "+m.Plural
	if m.Parent != "" {
		rt.Op.Summary += " of one " + m.Parent
	}
	return rt
}

// listAllRoute lists the children of all parents.
func (s *Server) listAllRoute(r *rest.Router, m *machines.Machine) *rest.Route {
	rt := s.anyListRoute(r, m, "/v1/"+m.Plural)
	rt.Op.OperationID, rt.Op.Summary = "list-all-"+m.Name, "List "+m.Plural+" of every "+m.Parent
	rt.Op.Parameters = append(rt.Op.Parameters, rest.QueryParam("parent", "Only the children of this "+m.Parent, rest.Text(63)))
	return rt
}

func (s *Server) anyListRoute(r *rest.Router, m *machines.Machine, path string) *rest.Route {
	list := func(doc string) *huma.Param {
		return rest.QueryParam("", doc, &huma.Schema{Type: huma.TypeArray, Items: rest.Text(512)})
	}
	state, label := list("Only in these states, with commas or repeated"), list("Only with these labels: k=v, k!=v, k in (a,b), or k for any value; all given must hold"+entities.SelectedBy(m))
	state.Name, label.Name, label.Example = "state", "label", []string{"team=web"}
	include := rest.QueryParam("include", "data: the whole entities as well", &huma.Schema{Type: huma.TypeString, Enum: []any{"data"}})
	return &rest.Route{Role: auth.Read, Serve: func(q *rest.Request) error { return s.list(q, m) }, Op: huma.Operation{
		Method: http.MethodGet, Path: path, Tags: []string{m.Name}, Description: "Answered from this node's index, as of the revision in the answer; minRevision waits for a revision.",
		Errors: []int{400, 404, 422, 503, 504},
		Parameters: []*huma.Param{
			rest.QueryParam("namespace", "The namespace, or * for all that the token may see", rest.Text(63)), state, label,
			rest.QueryParam("updatedAfter", "", rest.Instant()), rest.QueryParam("updatedBefore", "", rest.Instant()), rest.QueryParam("createdAfter", "", rest.Instant()), rest.QueryParam("createdBefore", "", rest.Instant()),
			rest.QueryParam("sinceBefore", "Only those that have been in their state since before then", rest.Instant()), rest.QueryParam("parked", "Only those whose stored value cannot be read", rest.Boolean()), rest.QueryParam("idPrefix", "Only those whose ids begin with it", rest.Text(63)),
			rest.LimitParam(), rest.QueryParam("cursor", "nextCursor of the page before, with the same filters", rest.Text(1024)),
			rest.QueryParam("minRevision", "Wait until this revision is in the index, up to 5 s", rest.Number(0)), include, orderByParam(),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A page", Headers: map[string]*huma.Param{rest.HeaderStale: rest.StaleHeader()}, Content: r.BodyOf(reflect.TypeFor[Page]())}},
	}}
}

func (s *Server) list(q *rest.Request, m *machines.Machine) error {
	kq, err := s.listQuery(q, m)
	if err != nil {
		return err
	}
	if err := s.store.Indexed(m.Name); err != nil {
		return err
	}
	if err := s.store.WaitIndex(q, m); err != nil {
		return err
	}
	filter := kq.hash()
	if c := q.Query.Get("cursor"); c != "" {
		if kq.After, kq.AfterTime, err = readCursor(c, filter); err != nil {
			return err
		}
	}
	kq.Limit = q.PageSize()
	stale := s.store.MarkStale(q, m) // before the list: it may be newer than it says, never older
	page := s.store.Index(m.Name).List(kq.Query)
	out := Page{Items: make([]entities.Item, 0, len(page.Items)), Revision: page.Revision, Stale: stale}
	if page.Next != "" {
		out.NextCursor = writeCursor(page, filter)
	}
	for _, it := range page.Items {
		out.Items = append(out.Items, entities.ItemOf(it))
	}
	if q.Query.Get("include") == "data" {
		if err := s.include(q, m, page.Items, out.Items); err != nil {
			return err
		}
	}
	return q.JSON(http.StatusOK, out)
}

// include reads the whole entities of a page, each in turn, a few at a time.
func (s *Server) include(q *rest.Request, m *machines.Machine, items []index.Item, out []entities.Item) error {
	return q.EachInTurn(len(items), 16, func(i int) error {
		e, _, err := s.store.Shown(q, m, items[i].Key)
		var p *problem.Problem
		if errors.As(err, &p) { // gone, or parked: the item says so
			err = nil
		}
		out[i].Entity = e
		return err
	})
}

// listing is a query with what it was made from.
type listing struct {
	index.Query
	machine string
	filters []string
}

// hash tells two sets of filters apart.
func (l *listing) hash() string {
	sum := sha256.New()
	for _, f := range append([]string{l.machine, l.Namespace, l.Parent}, l.filters...) {
		sum.Write([]byte(f))
		sum.Write([]byte{0})
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

func (s *Server) listQuery(q *rest.Request, m *machines.Machine) (*listing, error) {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return nil, p
	}
	l := &listing{Query: index.Query{Namespace: ns, States: q.Values("state")}, machine: m.Name}
	switch {
	case q.PathValue(m.Parent) != "":
		l.Parent = q.PathValue(m.Parent)
	case q.Query.Get("parent") != "":
		if l.Parent = q.Query.Get("parent"); streams.CheckLabel(l.Parent) != nil {
			return nil, problem.Invalid("query.parent", problem.LabelRule)
		}
	}
	for _, state := range l.States {
		if _, ok := m.State(state); !ok {
			return nil, problem.Invalid("query.state", "is no state of "+m.Name)
		}
	}
	if l.Labels, p = entities.Selectors(m, "query.label", q.Query["label"]...); p != nil {
		return nil, p
	}
	if p := s.bounds(q, l); p != nil {
		return nil, p
	}
	if l.IDPrefix = q.Query.Get("idPrefix"); l.IDPrefix != "" {
		l.filters = append(l.filters, "idPrefix="+l.IDPrefix)
	}
	if l.Problems = q.Flag("parked"); l.Problems {
		l.filters = append(l.filters, "parked")
	}
	if text := q.Query.Get("orderBy"); text != "" {
		if l.Order, p = orderOf(text); p != nil {
			return nil, p
		}
		l.filters = append(l.filters, fmt.Sprint("orderBy=", l.Order))
	}
	for _, state := range l.States {
		l.filters = append(l.filters, "state="+state)
	}
	for _, sel := range l.Labels {
		l.filters = append(l.filters, "label="+sel.String())
	}
	sort.Strings(l.filters)
	return l, nil
}

// bounds reads the times of a query.
func (s *Server) bounds(q *rest.Request, l *listing) *problem.Problem {
	for name, at := range map[string]*time.Time{"updatedAfter": &l.UpdatedAfter, "updatedBefore": &l.UpdatedBefore, "createdAfter": &l.CreatedAfter, "createdBefore": &l.CreatedBefore, "sinceBefore": &l.SinceBefore} {
		text := q.Query.Get(name)
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || t.Year() < 1970 || t.Year() > 2200 {
			return problem.Invalid("query."+name, "must be a date-time of RFC 3339 between 1970 and 2200")
		}
		*at = t
		l.filters = append(l.filters, name+"="+t.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// orders are what lists can be ordered by.
var orders = map[string]index.By{"id": index.ByKey, "createdAt": index.ByCreated, "updatedAt": index.ByUpdated, "since": index.BySince}

func orderByParam() *huma.Param {
	p := rest.QueryParam("orderBy", "id (the default, and the only order that costs nothing), createdAt, updatedAt or since; the times also with desc behind", rest.Text(32))
	p.Example = "updatedAt desc"
	return p
}

// orderOf reads orderBy as AIP-132 writes it: a field, and desc behind it for the other way round.
func orderOf(text string) (o index.Order, p *problem.Problem) {
	words := strings.Fields(text)
	by, known := index.ByKey, false
	if len(words) > 0 {
		by, known = orders[words[0]]
	}
	o = index.Order{By: by, Descending: len(words) == 2 && words[1] == "desc"}
	if !known || len(words) > 2 || len(words) == 2 && !o.Descending || o.Descending && by == index.ByKey {
		return o, problem.Invalid("query.orderBy", "must be id, createdAt, updatedAt or since; the times also with desc behind")
	}
	return o, nil
}

type cursor struct {
	Key    string     `json:"k"`
	Time   *time.Time `json:"t,omitempty"` // of an order by time
	Filter string     `json:"f"`
}

func writeCursor(page index.Page, filter string) string {
	c := cursor{Key: page.Next, Filter: filter}
	if !page.NextTime.IsZero() {
		c.Time = &page.NextTime
	}
	raw, _ := json.Marshal(c) // strings and a time
	return base64.RawURLEncoding.EncodeToString(raw)
}

func readCursor(text, filter string) (key string, at time.Time, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	var c cursor
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil || c.Key == "" || strings.ContainsAny(c.Key, "\x00*>") {
		return "", at, problem.New(problem.CodeMalformed, "the cursor is not one that was given out")
	}
	if c.Filter != filter {
		return "", at, problem.New(problem.CodeMalformed, "the cursor belongs to a list with other filters or another order")
	}
	if c.Time != nil {
		at = *c.Time
	}
	return c.Key, at, nil
}
