package api

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

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Item is what lists show of an entity.
type Item struct {
	ID         string            `json:"id"`
	Namespace  string            `json:"namespace"`
	Parent     string            `json:"parent,omitempty"`
	State      string            `json:"state"`
	Version    uint64            `json:"version"`
	Generation uint64            `json:"generation"`
	Revision   uint64            `json:"revision"`
	Labels     map[string]string `json:"labels,omitempty"`
	Since      time.Time         `json:"since"`
	CreatedAt  time.Time         `json:"createdAt"`
	UpdatedAt  time.Time         `json:"updatedAt"`
	Problem    string            `json:"problem,omitempty" doc:"Why the entity cannot be shown; then only id, namespace, parent, revision and updatedAt hold"`
	Entity     *Entity           `json:"entity,omitempty" doc:"With include=data, the whole entity as of now, which may be newer than the item"`
}

// Page is a part of a list.
type Page struct {
	Items      []Item `json:"items"`
	NextCursor string `json:"nextCursor" doc:"For the next page; empty at the end"`
	Revision   uint64 `json:"revision" doc:"All writes up to this revision are in the page"`

	Stale float64 `json:"staleSeconds,omitempty" doc:"The node hears nothing from the bucket, or cannot hear the others: the page is what it knew so many seconds ago"`
}

func (s *Server) listRoute(m *machines.Machine, base string) *route {
	rt := s.anyListRoute(m, base)
	rt.op.OperationID, rt.op.Summary = "list-"+m.Name, "List "+m.Plural
	if m.Parent != "" {
		rt.op.Summary += " of one " + m.Parent
	}
	return rt
}

// listAllRoute lists the children of all parents.
func (s *Server) listAllRoute(m *machines.Machine) *route {
	rt := s.anyListRoute(m, "/v1/"+m.Plural)
	rt.op.OperationID, rt.op.Summary = "list-all-"+m.Name, "List "+m.Plural+" of every "+m.Parent
	rt.op.Parameters = append(rt.op.Parameters, query("parent", "Only the children of this "+m.Parent, text(63)))
	return rt
}

func (s *Server) anyListRoute(m *machines.Machine, path string) *route {
	list := func(doc string) *huma.Param {
		return query("", doc, &huma.Schema{Type: huma.TypeArray, Items: text(512)})
	}
	state, label := list("Only in these states, with commas or repeated"), list("Only with these labels: k=v, k!=v, k in (a,b), or k for any value; all given must hold")
	state.Name, label.Name, label.Example = "state", "label", []string{"team=web"}
	include := query("include", "data: the whole entities as well", &huma.Schema{Type: huma.TypeString, Enum: []any{"data"}})
	limit := number(1)
	limit.Default, limit.Description = defaultPage, "More than 500 is taken for 500"
	return &route{role: Read, serve: func(q *request) error { return q.list(m) }, op: huma.Operation{
		Method: http.MethodGet, Path: path, Tags: []string{m.Name}, Description: "Answers from the index of the process. The revision says how new it is; minRevision waits.",
		Errors: []int{400, 404, 422, 503, 504},
		Parameters: []*huma.Param{
			query("namespace", "The namespace, or * for all that the token may see", text(63)), state, label,
			query("updatedAfter", "", instant()), query("updatedBefore", "", instant()), query("createdAfter", "", instant()), query("createdBefore", "", instant()),
			query("limit", "Size of the page", limit), query("cursor", "nextCursor of the page before, with the same filters", text(1024)),
			query("minRevision", "Wait until this revision is in the index, up to 5 s", number(0)), include, orderByParam(),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A page", Headers: map[string]*huma.Param{headerStale: staleHeader()}, Content: s.bodyOf(reflect.TypeFor[Page]())}},
	}}
}

func (q *request) list(m *machines.Machine) error {
	kq, err := q.listQuery(m)
	if err != nil {
		return err
	}
	if err := q.indexed(m.Name); err != nil {
		return err
	}
	if err := q.waitIndex(m); err != nil {
		return err
	}
	filter := kq.hash()
	if c := q.query.Get("cursor"); c != "" {
		if kq.After, kq.AfterTime, err = readCursor(c, filter); err != nil {
			return err
		}
	}
	kq.Limit = q.limit()
	stale := q.tellStale(m) // before the list: it may be newer than it says, never older
	page := q.o.Indexes[m.Name].List(kq.Query)
	out := Page{Items: make([]Item, 0, len(page.Items)), Revision: page.Revision, Stale: stale}
	if page.Next != "" {
		out.NextCursor = writeCursor(page, filter)
	}
	for _, it := range page.Items {
		out.Items = append(out.Items, itemOf(it))
	}
	if q.query.Get("include") == "data" {
		if err := q.include(m, page.Items, out.Items); err != nil {
			return err
		}
	}
	return q.json(http.StatusOK, out)
}

func itemOf(it kv.Item) Item {
	out := Item{
		State: it.State, Version: it.Version, Generation: it.Generation, Revision: it.Revision, Labels: it.Labels,
		Since: it.Since, CreatedAt: it.CreatedAt, UpdatedAt: it.UpdatedAt,
	}
	out.Namespace, out.Parent, out.ID, _ = streams.SplitKey(it.Key) // a key that is none shows as an empty one
	if it.Problem != "" {
		out.Problem = "the stored value cannot be read"
	}
	return out
}

// include reads the whole entities of a page, a few at a time.
func (q *request) include(m *machines.Machine, items []kv.Item, out []Item) error {
	errs := make(chan error, len(items))
	gate := make(chan struct{}, 16)
	for i := range items {
		gate <- struct{}{}
		go func() {
			defer func() { <-gate }()
			defer func() {
				if p := recover(); p != nil {
					errs <- panics.Error("http", p)
				}
			}()
			e, err := q.load(m, items[i].Key)
			var p *Problem
			if errors.As(err, &p) { // gone, or parked: the item says so
				err = nil
			}
			out[i].Entity = e
			errs <- err
		}()
	}
	var first error
	for range items {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// listing is a query with what it was made from.
type listing struct {
	kv.Query
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

func (q *request) listQuery(m *machines.Machine) (*listing, error) {
	ns, p := q.who.in(q.query.Get("namespace"), true)
	if p != nil {
		return nil, p
	}
	if ns == anyNamespace {
		ns = ""
	}
	l := &listing{Query: kv.Query{Namespace: ns, States: values(q.query["state"])}, machine: m.Name}
	switch {
	case q.path(m.Parent) != "":
		l.Parent = q.path(m.Parent)
	case q.query.Get("parent") != "":
		if l.Parent = q.query.Get("parent"); streams.CheckLabel(l.Parent) != nil {
			return nil, invalid("query.parent", labelRule)
		}
	}
	for _, state := range l.States {
		if _, ok := m.State(state); !ok {
			return nil, invalid("query.state", "is no state of "+m.Name)
		}
	}
	for _, text := range q.query["label"] {
		selectors, err := kv.ParseSelectors(text)
		if err != nil {
			return nil, invalid("query.label", "must be k=v, k!=v, k in (a,b) or k")
		}
		l.Labels = append(l.Labels, selectors...)
	}
	if len(l.Labels) > 16 {
		return nil, invalid("query.label", "must be up to 16")
	}
	if p := q.bounds(l); p != nil {
		return nil, p
	}
	if text := q.query.Get("orderBy"); text != "" {
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
func (q *request) bounds(l *listing) *Problem {
	for name, at := range map[string]*time.Time{"updatedAfter": &l.UpdatedAfter, "updatedBefore": &l.UpdatedBefore, "createdAfter": &l.CreatedAfter, "createdBefore": &l.CreatedBefore} {
		text := q.query.Get(name)
		if text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil || t.Year() < 1970 || t.Year() > 2200 {
			return invalid("query."+name, "must be a date-time of RFC 3339 between 1970 and 2200")
		}
		*at = t
		l.filters = append(l.filters, name+"="+t.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// orders are the times that lists can be ordered by.
var orders = map[string]kv.By{"id": kv.ByKey, "createdAt": kv.ByCreated, "updatedAt": kv.ByUpdated, "since": kv.BySince}

func orderByParam() *huma.Param {
	p := query("orderBy", "id (the default, and the only order that costs nothing), createdAt, updatedAt or since; the times also with desc behind", text(32))
	p.Example = "updatedAt desc"
	return p
}

// orderOf reads orderBy as AIP-132 writes it: a field, and desc behind it for the other way round.
func orderOf(text string) (o kv.Order, p *Problem) {
	words := strings.Fields(text)
	by, known := kv.ByKey, false
	if len(words) > 0 {
		by, known = orders[words[0]]
	}
	o = kv.Order{By: by, Descending: len(words) == 2 && words[1] == "desc"}
	if !known || len(words) > 2 || len(words) == 2 && !o.Descending || o.Descending && by == kv.ByKey {
		return o, invalid("query.orderBy", "must be id, createdAt, updatedAt or since; the times also with desc behind")
	}
	return o, nil
}

type cursor struct {
	Key    string     `json:"k"`
	Time   *time.Time `json:"t,omitempty"` // of an order by time
	Filter string     `json:"f"`
}

func writeCursor(page kv.Page, filter string) string {
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
		return "", at, problem(codeMalformed, "the cursor is not one that was given out")
	}
	if c.Filter != filter {
		return "", at, problem(codeMalformed, "the cursor belongs to a list with other filters or another order")
	}
	if c.Time != nil {
		at = *c.Time
	}
	return c.Key, at, nil
}
