package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/api/discovery"
)

const registration = `{"serviceName":"web","nodeAddress":"10.0.0.1:8080","zone":"z1","weight":50,"tags":["a","b"],"payload":{"region":"eu","version":"1.0"},` +
	`"check":{"type":"http","path":"/health","port":81,"status":[200,204],"tls":true,"headers":{"Host":"x"}},"policy":{"rise":2,"drain":"10s","noFlap":false},"labels":{"team":"x"}}`

func shaped() (*Server, *huma.Schema) {
	s := &Server{api: humago.New(http.NewServeMux(), humaConfig(Version{}))}
	return s, s.registry().Schema(reflect.TypeFor[discovery.Registration](), true, "")
}

// slowly is registration without shapes.
func slowly(s *Server, schema *huma.Schema, raw []byte) (registrant, []byte, error) {
	s.shapes.Store(schema, (*shape)(nil))
	defer s.shapes.Delete(schema)
	return s.registration(schema, raw)
}

func TestMostRegistrationsHaveTheShape(t *testing.T) {
	t.Parallel()
	s, schema := shaped()
	for _, body := range []string{
		registration, `{"serviceName":"web","nodeAddress":"10.0.0.1:8080"}`, ` { "serviceName" : "web" , "nodeAddress" : "a:1", "instanceId":"i-1", "namespace":"acme", "payload": { } } `,
	} {
		reg, rest, ok := plainRegistration(s.shape(schema), []byte(body))
		require.True(t, ok, body)
		want, wantRest, err := slowly(s, schema, []byte(body))
		require.NoError(t, err)
		require.Equal(t, want, reg)
		require.Equal(t, string(wantRest), string(rest))
	}
}

// What a shape takes is right, whatever became of the body on its way, and comes to the same as without it.
func TestAShapeTakesOnlyWhatIsRight(t *testing.T) {
	t.Parallel()
	s, schema := shaped()
	pieces := []string{`"`, `{`, `}`, `[`, `]`, `,`, `:`, `\`, ` `, `0`, `1`, `-`, `.`, `e9`, `null`, `true`, `""`, `"web"`, `é`, `<`, "\n", `"zone":"a"`, `"Zone":"b",`, `{}`, `"x":1,`, `"udp"`, `99999999999999999999`}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(registration)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			from := rapid.IntRange(0, len(raw)).Draw(t, "from")
			to := min(from+rapid.IntRange(0, 12).Draw(t, "length"), len(raw))
			raw = append(append(append([]byte(nil), raw[:from]...), rapid.SampledFrom(append(pieces, "")).Draw(t, "piece")...), raw[to:]...)
		}
		reg, rest, ok := plainRegistration(s.shape(schema), raw)
		if !ok {
			return
		}
		taken++
		want, wantRest, err := slowly(s, schema, raw)
		require.NoError(t, err, string(raw))
		require.Equal(t, want, reg, string(raw))
		require.Equal(t, string(wantRest), string(rest))
		require.True(t, json.Valid(rest))
	})
	require.Positive(t, taken, "some of them are right")
}

func TestAShapeRefuses(t *testing.T) {
	t.Parallel()
	s, schema := shaped()
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"serviceName":"web"}`, `{"serviceName":"Web","nodeAddress":"a:1"}`, `{"serviceName":"web","nodeAddress":"a"}`, `{"serviceName":"web","nodeAddress":"a:1","weight":65536}`,
		`{"serviceName":"web","nodeAddress":"a:1","weight":-1}`, `{"serviceName":"web","nodeAddress":"a:1","weight":01}`, `{"serviceName":"web","nodeAddress":"a:1","weight":1.5}`,
		`{"serviceName":"web","nodeAddress":"a:1","check":{"type":"none of these"}}`, `{"serviceName":"web","nodeAddress":"a:1","unknown":1}`, `{"serviceName":"web","nodeAddress":"a:1"} x`,
		`{"serviceName":"web","serviceName":"db","nodeAddress":"a:1"}`, `{"serviceName":"web","nodeAddress":"a:1",}`, `{"serviceName":"web","nodeAddress":"a:1","zone":null}`, `{"serviceName":"web" "nodeAddress":"a:1"}`,
	} {
		require.False(t, s.shape(schema).takes([]byte(body)), body)
	}
}

func BenchmarkRegistration(b *testing.B) {
	s, schema := shaped()
	b.Run("Shape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = s.registration(schema, []byte(registration))
		}
	})
	b.Run("Schema", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = slowly(s, schema, []byte(registration))
		}
	})
}
