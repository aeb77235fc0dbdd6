package api

import (
	"errors"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

func (s *Server) eventsRoute(r *rest.Router, m *machines.Machine, base string) *rest.Route {
	types := &huma.Schema{Type: huma.TypeArray, Items: rest.Text(512)}
	return &rest.Route{Role: auth.Read, Serve: func(q *rest.Request) error { return s.events(q, m) }, Op: huma.Operation{
		OperationID: "list-" + m.Name + "-events", Method: http.MethodGet, Path: base + "/{id}/events", Tags: []string{m.Name},
		Summary: "Read the timeline of one " + m.Name, Description: "Who requested what, when and why, and with which result, since the creation of the entity.",
		Errors: []int{404, 422, 503},
		Parameters: []*huma.Param{
			rest.NamespaceParam(), rest.QueryParam("after", "Only behind this sequence, the oldest first", rest.Number(0)),
			rest.QueryParam("before", "Only before this sequence, the newest first; 0 begins with the last one. Of some types a page may have fewer than asked for, and others may follow", rest.Number(0)), rest.LimitParam(),
			rest.QueryParam("type", "Only of these types, with commas or repeated", types),
		},
		Responses: map[string]*huma.Response{"200": {Description: "A page", Content: r.BodyOf(reflect.TypeFor[entities.Timeline]())}},
	}}
}

func (s *Server) events(q *rest.Request, m *machines.Machine) error {
	_, key, err := q.Key(m)
	if err != nil {
		return err
	}
	types, p := s.eventTypes(q, m, key)
	if p != nil {
		return p
	}
	stored, err := s.store.Read(q, m, key)
	if err == nil && time.Since(stored.Created) < publishedSince {
		err = s.store.Published(q, m, key, stored.Value)
	}
	if q.Context().Err() != nil {
		return q.Context().Err()
	}
	gone := errors.Is(err, kv.ErrNotFound) // with any other error there is a timeline all the same
	var page *entities.Timeline
	if q.Query.Has("before") {
		page, err = s.store.Earlier(q, m, key, types, q.Number("before"), q.PageSize())
	} else {
		if types == nil {
			types = []string{s.store.Names.EventsOf(m.Name, key)}
		}
		page, err = s.store.Timeline(q, m, types, entities.Position{After: q.Number("after")}, q.PageSize())
	}
	if err != nil {
		return err
	}
	if gone && len(page.Items) == 0 {
		return entities.NotFound(m)
	}
	return q.JSON(http.StatusOK, page)
}

// eventTypes are the subjects of the types that are asked for; none are all.
func (s *Server) eventTypes(q *rest.Request, m *machines.Machine, key string) (subjects []string, p *problem.Problem) {
	if q.Query.Has("before") && q.Query.Has("after") {
		return nil, problem.Invalid("query.before", "cannot be together with after")
	}
	for _, typ := range q.Values("type") {
		e, ok := m.Event(typ)
		if !ok {
			return nil, problem.Invalid("query.type", "is no event of "+m.Name)
		}
		subjects = append(subjects, s.store.Names.Event(m.Name, key, e.Subject))
	}
	return subjects, nil
}

// Events follow the value that they belong to within a moment.
const (
	publishedSince = 5 * time.Second // after the value they are there, or will not come soon
)
