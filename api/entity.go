package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

// entityRoute reads one entity.
func (s *Server) entityRoute(r *rest.Router, m *machines.Machine, base string) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: func(q *rest.Request) error { return s.entity(q, m) }, Op: huma.Operation{
		OperationID: "get-" + m.Name, Method: http.MethodGet, Path: base + "/{id}", Tags: []string{m.Name},
		Summary: "Read one " + m.Name, Description: "Reads from the leader of the bucket: every write acknowledged before is in the answer.",
		Errors: []int{404, 409, 422, 503, 504},
		Parameters: []*huma.Param{
			rest.NamespaceParam(), rest.QueryParam("minRevision", "Wait until the index has this revision as well, up to 5 s", rest.Number(0)),
			rest.HeaderParam("If-None-Match", "Answer 304 when the entity is still at this ETag", `"42"`),
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "The entity", Headers: map[string]*huma.Param{"ETag": {Schema: rest.Text(32)}}, Content: map[string]*huma.MediaType{"application/json": {Schema: entities.EntitySchema(r, m)}}},
			"304": {Description: "The entity still has the ETag"},
		},
	}}
}

// noStore keeps caches, as that of a browser, from asking with the tag of an answer that they have: a tag is of what is stored, and which commands are forbidden depends on who reads, and when.
var noStore = []string{"no-store"}

func (s *Server) entity(q *rest.Request, m *machines.Machine) error {
	_, key, err := q.Key(m)
	if err != nil {
		return err
	}
	if err := s.store.WaitIndex(q, m); err != nil {
		return err
	}
	e, stored, err := s.store.LoadStored(q, m, key)
	if err != nil {
		return err
	}
	q.W.Header()["Etag"] = []string{rest.ETag(e.Revision)}
	q.W.Header()["Cache-Control"] = noStore
	if rest.Unchanged(q.R, strconv.FormatUint(e.Revision, 10)) {
		q.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	e.Forbid(m, stored, q.Who.Name)
	return q.JSON(http.StatusOK, e)
}

// viewRoute reads one read model of one entity.
func (s *Server) viewRoute(m *machines.Machine, v machines.View, base string) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: func(q *rest.Request) error { return s.view(q, m, v) }, Op: huma.Operation{
		OperationID: "get-" + m.Name + "-" + v.Name, Method: http.MethodGet, Path: base + "/{id}/" + v.Name, Tags: []string{m.Name},
		Summary: "Read the view " + v.Name + " of one " + m.Name, Description: v.Doc + " It is built from " + strings.Join(v.Events, ", ") + ".",
		Errors: []int{404, 409, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam(), rest.HeaderParam("If-None-Match", "Answer 304 when the view is still at this ETag", `"42"`)},
		Responses: map[string]*huma.Response{
			"200": {Description: "The view; a list is under items", Headers: map[string]*huma.Param{"ETag": {Schema: rest.Text(32)}}, Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}}}},
			"304": {Description: "The view still has the ETag"},
		},
	}}
}

func (s *Server) view(q *rest.Request, m *machines.Machine, v machines.View) error {
	_, key, err := q.Key(m)
	if err != nil {
		return err
	}
	stored, err := s.store.View(q, m, v, key)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		if _, err := s.store.Read(q, m, key); errors.Is(err, kv.ErrNotFound) {
			return entities.NotFound(m)
		}
		return problem.New(machines.CodeNotFound, "nothing has happened yet that this view is made of")
	case errors.Is(err, kv.ErrCorrupt):
		return problem.New(machines.CodeParked, "the stored view cannot be read")
	case err != nil:
		return err
	}
	q.W.Header()["Etag"] = []string{rest.ETag(stored.Revision)}
	if rest.Unchanged(q.R, strconv.FormatUint(stored.Revision, 10)) {
		q.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	var folded machines.Folded
	if err := json.Unmarshal(stored.Value, &folded); err != nil || len(folded.Value) == 0 {
		return problem.New(machines.CodeParked, "the stored view cannot be read")
	}
	switch folded.Value[0] {
	case '{':
		return q.JSON(http.StatusOK, folded.Value)
	case '[':
		return q.JSON(http.StatusOK, map[string]json.RawMessage{"items": folded.Value})
	}
	return q.JSON(http.StatusOK, map[string]json.RawMessage{"value": folded.Value})
}
