package api

// GET /v1/machines/{machine}/commands/{command}: one command with all that a form for it needs, out of the OpenAPI document, which is a thousand times as large.

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
)

// CommandForm is how a command is sent.
type CommandForm struct {
	Machine     string         `json:"machine"`
	Command     string         `json:"command"`
	Doc         string         `json:"doc,omitempty"`
	Path        string         `json:"path" doc:"Of the POST, with the names of what is to be filled in"`
	Role        auth.Role      `json:"role" enum:"read,operate,admin" doc:"That it needs"`
	Birth       bool           `json:"birth,omitempty" doc:"It begins an entity"`
	Destructive bool           `json:"destructive,omitempty" doc:"Ask before sending it"`
	Replaces    bool           `json:"replaces,omitempty" doc:"Its body takes the place of what the entity has in its data, or as labels, under the same names: begin with that"`
	Schema      map[string]any `json:"schema,omitempty" doc:"JSON schema of the body; absent for a command without one"`
	Schemas     map[string]any `json:"schemas,omitempty" doc:"What the schema refers to as #/components/schemas/NAME"`
}

func (s *Server) commandForm(q *rest.Request) error {
	m, err := s.machine(q)
	if err != nil {
		return err
	}
	c, ok := m.Input(q.PathValue("command"))
	rt := q.Router().Command(m.Name, q.PathValue("command"))
	if !ok || c.Report || rt == nil {
		return problem.New(machines.CodeNotFound, m.Name+" has no such command")
	}
	form := CommandForm{Machine: m.Name, Command: c.Name, Doc: c.Doc, Path: rt.Op.Path, Role: rt.Role, Birth: c.Birth, Destructive: c.Destructive, Replaces: c.Replaces}
	if body := rt.Body(); body != nil {
		form.Schemas = map[string]any{}
		form.Schema = plainSchema(body, q.Router().Registry(), form.Schemas)
	}
	return q.JSON(http.StatusOK, form)
}

// plainSchema is a schema as it is written, and puts those that it refers to into refs.
func plainSchema(of *huma.Schema, reg huma.Registry, refs map[string]any) map[string]any {
	if of == nil {
		return nil
	}
	if of.Ref != "" {
		name := of.Ref[strings.LastIndexByte(of.Ref, '/')+1:]
		if _, there := refs[name]; !there {
			refs[name] = nil // it may refer to itself
			refs[name] = plainSchema(reg.SchemaFromRef(of.Ref), reg, refs)
		}
		return map[string]any{"$ref": of.Ref}
	}
	out := map[string]any{}
	for key, v := range map[string]any{"type": of.Type, "title": of.Title, "description": of.Description, "format": of.Format, "pattern": of.Pattern} {
		if v != "" {
			out[key] = v
		}
	}
	if of.Default != nil {
		out["default"] = of.Default
	}
	if len(of.Examples) > 0 {
		out["examples"] = of.Examples
	}
	if len(of.Enum) > 0 {
		out["enum"] = of.Enum
	}
	if len(of.Required) > 0 {
		out["required"] = of.Required
	}
	bound(out, "minimum", of.Minimum)
	bound(out, "maximum", of.Maximum)
	bound(out, "minLength", of.MinLength)
	bound(out, "maxLength", of.MaxLength)
	bound(out, "minItems", of.MinItems)
	bound(out, "maxItems", of.MaxItems)
	if of.Items != nil {
		out["items"] = plainSchema(of.Items, reg, refs)
	}
	switch more := of.AdditionalProperties.(type) {
	case *huma.Schema:
		out["additionalProperties"] = plainSchema(more, reg, refs)
	case bool:
		out["additionalProperties"] = more
	}
	if len(of.Properties) > 0 {
		properties := map[string]any{}
		for name, p := range of.Properties {
			properties[name] = plainSchema(p, reg, refs)
		}
		out["properties"] = properties
	}
	return out
}

func bound[N int | float64](out map[string]any, key string, n *N) {
	if n != nil {
		out[key] = *n
	}
}
