package documents

// The OpenAPI document, which huma has collected while routes were registered with the router. openAPI adds tags for
// Set.Publish (publish.go). published adapts the schemas to what generators of clients need, also those of the AsyncAPI document.

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
)

// tagDocs explain the groups of operations that are not those of a machine, in the order of the document.
var tagDocs = []*huma.Tag{
	{Name: "watch", Description: "Changes as they happen."},
	{Name: "discovery", Description: "Instances of services."},
	{Name: "operations", Description: "Accepted commands and batches of commands."},
	{Name: "outbox", Description: "Outboxes in databases that this server relays."},
	{Name: "machines", Description: "Tables of machines, and entity counts."},
	{Name: "session", Description: "Sessions of browsers, which stand for a token."},
	{Name: "dead letters", Description: "Messages that could not be processed."},
	{Name: "nodes", Description: "Processes that share the work."},
	{Name: "server", Description: "Health and metrics of the process."},
}

// openAPI is the document of all operations. The schemas that requests are checked with say what the server takes and sends today;
// published are those that its clients can rely on: see [Set.published].
func (s *Set) openAPI() *huma.OpenAPI {
	o := s.router.API.OpenAPI()
	used := map[string]bool{}
	for _, rt := range s.router.Routes {
		for _, tag := range rt.Op.Tags {
			used[tag] = !rt.Op.Hidden || used[tag]
		}
	}
	for _, tag := range tagDocs {
		if used[tag.Name] {
			o.Tags = append(o.Tags, tag)
		}
	}
	return o
}

func asYAML(text []byte) ([]byte, error) {
	var y bytes.Buffer
	err := yaml.Convert(&y, bytes.NewReader(text))
	return y.Bytes(), err
}

// published writes a document with schemas as generators of clients need them. No array may be null: that none is, tests
// check. And only schemas that occur in requests alone forbid unknown members: answers gain members with every version, and
// a client that was generated from this one has to keep working.
func (s *Set) published(document any) ([]byte, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var whole map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&whole); err != nil {
		return nil, err
	}
	walkJSON(whole, func(o map[string]any) {
		if kinds, ok := o["type"].([]any); ok && len(kinds) == 2 && slices.Contains(kinds, any("array")) {
			o["type"] = "array"
		}
	})
	closed := s.closedSchemas()
	components, _ := whole["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	for name, schema := range schemas {
		if closed[name] {
			continue
		}
		walkJSON(schema, func(o map[string]any) {
			if o["additionalProperties"] == false {
				delete(o, "additionalProperties")
			}
		})
	}
	paths, _ := whole["paths"].(map[string]any)
	for _, item := range paths {
		for _, op := range item.(map[string]any) {
			if op := op.(map[string]any); op["security"] == nil {
				op["security"] = []any{} // for huma the same as none, for readers of the document not
			}
		}
	}
	return indented(whole)
}

// walkJSON visits every object of a value, from the outside in.
func walkJSON(value any, visit func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		visit(v)
		for _, member := range v {
			walkJSON(member, visit)
		}
	case []any:
		for _, member := range v {
			walkJSON(member, visit)
		}
	}
}

// closedSchemas are the names of those that requests have and no answer.
func (s *Set) closedSchemas() map[string]bool {
	requests, answers := map[string]bool{}, map[string]bool{}
	for _, rt := range s.router.Routes {
		if rt.Op.RequestBody != nil {
			s.reach(rt.Op.RequestBody.Content, requests)
		}
		for _, answer := range rt.Op.Responses {
			s.reach(answer.Content, answers)
		}
	}
	maps.DeleteFunc(requests, func(name string, _ bool) bool { return answers[name] })
	return requests
}

// reach adds the names of all schemas that the content is made of.
func (s *Set) reach(content map[string]*huma.MediaType, names map[string]bool) {
	var add func(schema *huma.Schema)
	add = func(schema *huma.Schema) {
		if schema == nil {
			return
		}
		if name, ok := strings.CutPrefix(schema.Ref, "#/components/schemas/"); ok && !names[name] {
			names[name] = true
			add(s.router.Registry().SchemaFromRef(schema.Ref))
		}
		for _, p := range schema.Properties {
			add(p)
		}
		add(schema.Items)
		if more, ok := schema.AdditionalProperties.(*huma.Schema); ok {
			add(more)
		}
		for _, one := range slices.Concat(schema.OneOf, schema.AnyOf, schema.AllOf) {
			add(one)
		}
	}
	for _, media := range content {
		add(media.Schema)
	}
}
