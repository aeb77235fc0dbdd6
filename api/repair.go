package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

// StoredValue is what is stored of an entity, as it is.
type StoredValue struct {
	Revision uint64          `json:"revision" doc:"Revision that a repair must name"`
	Value    json.RawMessage `json:"value,omitempty" doc:"The value, if it is JSON"`
	Base64   string          `json:"base64,omitempty" doc:"The value in base64, if it is not JSON"`
	Problem  string          `json:"problem,omitempty" doc:"Why the entity is parked; absent if it is not"`
}

// ValueRepair is the document's form of [machines.Repair].
type ValueRepair struct {
	Revision uint64         `json:"revision" minimum:"1" doc:"Revision of the stored value to replace"`
	Value    map[string]any `json:"value" doc:"The new stored value, complete"`
}

var repairCommand = machines.Command{
	Name: machines.CommandRepair, Admin: true, Destructive: true, Body: ValueRepair{},
	Doc: "Gives a parked entity another stored value, and ends its being parked. The old value is kept in the event entity.reconciled (problem: repaired), with who did it. " +
		"What can be used is not replaced: it is changed by the commands of its machine alone.",
}

// storedRoute reads what is stored, also of a parked entity.
func (s *Server) storedRoute(r *rest.Router, m *machines.Machine, base string) *rest.Route {
	return &rest.Route{Role: auth.Admin, Serve: func(q *rest.Request) error { return s.storedValue(q, m) }, Op: huma.Operation{
		OperationID: "get-" + m.Name + "-stored-value", Method: http.MethodGet, Path: base + "/{id}/stored-value", Tags: []string{m.Name},
		Summary: "Read the stored value of one " + m.Name, Description: "The complete stored value, also of a parked " + m.Name + ".",
		Errors: []int{404, 422, 503}, Parameters: []*huma.Param{rest.NamespaceParam()},
		Responses: map[string]*huma.Response{"200": {Description: "The value", Content: r.BodyOf(reflect.TypeFor[StoredValue]())}},
	}}
}

func (s *Server) storedValue(q *rest.Request, m *machines.Machine) error {
	_, key, err := q.Key(m)
	if err != nil {
		return err
	}
	stored, err := s.store.Read(q, m, key)
	raw := []byte(stored.Value)
	var corrupt *kv.CorruptError
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return entities.NotFound(m)
	case errors.As(err, &corrupt):
		raw, stored.Revision = corrupt.Raw, corrupt.Revision
	case err != nil:
		return err
	}
	out := StoredValue{Revision: stored.Revision}
	if json.Valid(raw) {
		out.Value = raw
	} else {
		out.Base64 = base64.StdEncoding.EncodeToString(raw)
	}
	if _, err := m.DecodeAt(key, raw); err != nil {
		out.Problem = err.Error()
	}
	return q.JSON(http.StatusOK, out)
}
