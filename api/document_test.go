package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/machines"
)

// each visits every object of a document with the way to it.
func each(at string, value any, visit func(at string, object map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		visit(at, v)
		for name, member := range v {
			each(at+"/"+name, member, visit)
		}
	case []any:
		for i, member := range v {
			each(fmt.Sprintf("%s/%d", at, i), member, visit)
		}
	}
}

// What generators of clients make of the document holds for later versions of the server, too.
func TestTheDocumentSuitsGenerators(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Outbox, o.Nodes = &outboxes{}, &nodes{} })
	var doc map[string]any
	require.NoError(t, json.Unmarshal(b.server.OpenAPI(), &doc))
	operations := map[string]map[string]any{}
	each("", doc["paths"], func(at string, o map[string]any) {
		if o["operationId"] != nil {
			operations[at] = o
		}
	})
	require.Greater(t, len(operations), 30)

	t.Run("ServersAreNamed", func(t *testing.T) {
		require.Equal(t, []any{map[string]any{"url": "/", "description": "This server"}}, doc["servers"])
	})
	t.Run("EveryOperationSaysWhoMayCallIt", func(t *testing.T) {
		for at, o := range operations {
			require.Contains(t, o, "security", at)
		}
		require.Equal(t, []any{}, operations["//livez/get"]["security"], "nobody's token is needed")
	})
	t.Run("ArraysAreNeverNull", func(t *testing.T) {
		for _, raw := range [][]byte{b.server.OpenAPI(), b.server.AsyncAPI()} {
			var whole any
			require.NoError(t, json.Unmarshal(raw, &whole))
			each("", whole, func(at string, o map[string]any) {
				kinds, _ := o["type"].([]any)
				require.NotContains(t, kinds, "null", at)
			})
		}
	})
	t.Run("AnswersMayGetMembers", func(t *testing.T) {
		schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
		seen := map[string]bool{}
		var look func(at string, value any)
		look = func(at string, value any) {
			each(at, value, func(at string, o map[string]any) {
				require.NotEqual(t, false, o["additionalProperties"], at)
				if ref, _ := o["$ref"].(string); ref != "" && !seen[ref] {
					seen[ref] = true
					look(ref, schemas[strings.TrimPrefix(ref, "#/components/schemas/")])
				}
			})
		}
		for at, o := range operations {
			look(at, o["responses"])
		}
		require.Greater(t, len(seen), 20)
		closed := schemas["Redrive"].(map[string]any)
		require.Equal(t, false, closed["additionalProperties"], "what a request does not know is refused")
	})
	t.Run("RefusalsOfEveryRequestAreDocumented", func(t *testing.T) {
		for at, o := range operations {
			answers := o["responses"].(map[string]any)
			require.Contains(t, answers, "403", "%s: a foreign Host", at)
			if !strings.HasSuffix(at, "/get") {
				for _, status := range []string{"400", "413", "415"} {
					require.Contains(t, answers, status, at)
				}
			}
		}
	})
	t.Run("EveryTagIsExplained", func(t *testing.T) {
		var names []string
		for _, tag := range doc["tags"].([]any) {
			require.NotEmpty(t, tag.(map[string]any)["description"])
			names = append(names, tag.(map[string]any)["name"].(string))
		}
		used := map[string]bool{}
		for at, o := range operations {
			for _, tag := range o["tags"].([]any) {
				require.Contains(t, names, tag, at)
				used[tag.(string)] = true
			}
		}
		require.Len(t, used, len(names), "no tag without an operation: %v", names)
		require.True(t, slices.Contains(names, "outbox") && slices.Contains(names, "nodes"))
	})
	t.Run("YAMLIsTheSame", func(t *testing.T) {
		read := func(text []byte) string {
			doc, err := openapi3.NewLoader().LoadFromData(text)
			require.NoError(t, err)
			same, err := doc.MarshalJSON()
			require.NoError(t, err)
			return string(same)
		}
		require.JSONEq(t, read(b.server.OpenAPI()), read(b.get("/openapi.yaml").body))
	})
}

// A foreign Host is refused by what needs nobody's token, too, as the document says.
func TestRefusalsAreAsDocumented(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Tokens, o.Open, o.Hosts = nil, true, []string{} })
	b.get("/livez", "Host", "evil.example").problem(t, 403, "forbidden")
	b.get("/v1/gadgets", "Host", "evil.example").problem(t, 403, "forbidden")
	b.token = ""
	b.post("/v1/dead-letters/1/redrive", "x", "Content-Type", "text/plain").problem(t, 415, "unsupported-media-type")
	b.post("/v1/dead-letters/redrive", `{"seqs":[0]}`).problem(t, 422, machines.CodeValidation)
}
