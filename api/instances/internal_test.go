package instances

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/rest"
)

const registration = `{"serviceName":"web","nodeAddress":"10.0.0.1:8080","zone":"z1","weight":50,"tags":["a","b"],"payload":{"region":"eu","version":"1.0"},` +
	`"check":{"type":"http","path":"/health","port":81,"status":[200,204],"tls":true,"headers":{"Host":"x"}},"policy":{"rise":2,"drain":"10s","noFlap":false},"labels":{"team":"x"}}`

// newTestDoor is a door that serves nothing yet.
func newTestDoor() *rest.Server {
	d, err := rest.New(rest.Options{Open: true, Registry: prometheus.NewRegistry(), Tracer: noop.NewTracerProvider().Tracer(""), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return d
}

func registering() (*Service, *huma.Schema) {
	s := &Service{rest: newTestDoor()}
	return s, s.rest.Router().Registry().Schema(reflect.TypeFor[discovery.Registration](), true, "")
}

// slowly is registration that decodes every body.
func slowly(s *Service, of *huma.Schema, raw []byte) (registrant, []byte, error) {
	copied := *s.rest.Router().Registry().SchemaFromRef(of.Ref)
	copied.AllOf = []*huma.Schema{{}} // a rule that is left to huma
	return s.registration(s.rest.Router(), &copied, raw)
}

// plainly is registration of a body that is accepted as it stands.
func plainly(s *Service, of *huma.Schema, raw []byte) (registrant, []byte, bool) {
	members, ok := s.rest.Router().Schemas.Members(of, raw)
	if !ok {
		return registrant{}, nil, false
	}
	return plainRegistration(members, len(raw))
}

func TestMostRegistrationsHaveTheShape(t *testing.T) {
	t.Parallel()
	s, schema := registering()
	for _, body := range []string{
		registration, `{"serviceName":"web","nodeAddress":"10.0.0.1:8080"}`, ` { "serviceName" : "web" , "nodeAddress" : "a:1", "instanceId":"i-1", "namespace":"acme", "payload": { } } `,
	} {
		reg, rest, ok := plainly(s, schema, []byte(body))
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
	s, schema := registering()
	pieces := []string{`"`, `{`, `}`, `[`, `]`, `,`, `:`, `\`, ` `, `0`, `1`, `-`, `.`, `e9`, `null`, `true`, `""`, `"web"`, `é`, `<`, "\n", `"zone":"a"`, `"Zone":"b",`, `{}`, `"x":1,`, `"udp"`, `99999999999999999999`}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte(registration)
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			from := rapid.IntRange(0, len(raw)).Draw(t, "from")
			to := min(from+rapid.IntRange(0, 12).Draw(t, "length"), len(raw))
			raw = append(append(append([]byte(nil), raw[:from]...), rapid.SampledFrom(append(pieces, "")).Draw(t, "piece")...), raw[to:]...)
		}
		reg, rest, ok := plainly(s, schema, raw)
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
	s, schema := registering()
	for _, body := range []string{
		``, `{}`, `[]`, `null`, `{"serviceName":"web"}`, `{"serviceName":"Web","nodeAddress":"a:1"}`, `{"serviceName":"web","nodeAddress":"a"}`, `{"serviceName":"web","nodeAddress":"a:1","weight":65536}`,
		`{"serviceName":"web","nodeAddress":"a:1","weight":-1}`, `{"serviceName":"web","nodeAddress":"a:1","weight":01}`, `{"serviceName":"web","nodeAddress":"a:1","weight":1.5}`,
		`{"serviceName":"web","nodeAddress":"a:1","check":{"type":"none of these"}}`, `{"serviceName":"web","nodeAddress":"a:1","unknown":1}`, `{"serviceName":"web","nodeAddress":"a:1"} x`,
		`{"serviceName":"web","serviceName":"db","nodeAddress":"a:1"}`, `{"serviceName":"web","nodeAddress":"a:1",}`, `{"serviceName":"web","nodeAddress":"a:1","zone":null}`, `{"serviceName":"web" "nodeAddress":"a:1"}`,
	} {
		_, ok := s.rest.Router().Schemas.Members(schema, []byte(body))
		require.False(t, ok, body)
	}
}

func BenchmarkRegistration(b *testing.B) {
	s, schema := registering()
	b.Run("Shape", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = s.registration(s.rest.Router(), schema, []byte(registration))
		}
	})
	b.Run("Schema", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _, _ = slowly(s, schema, []byte(registration))
		}
	})
}

// What watches are told leads from each list to the next one, whether they share what is written or not.
func TestDeltasLeadFromListToList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lists := [][]discovery.Endpoint{nil}
		for n := range 4 {
			var list []discovery.Endpoint
			for i := range 6 {
				if rapid.Bool().Draw(t, "there") {
					list = append(list, discovery.Endpoint{InstanceID: fmt.Sprint("i", i), Weight: rapid.IntRange(1, 2).Draw(t, "weight"), Revision: uint64(rapid.IntRange(1, 2).Draw(t, "revision")), Payload: map[string]string{"n": fmt.Sprint(n)}})
				}
			}
			lists = append(lists, list)
		}
		var d deltas
		for range 8 {
			from, to := rapid.SampledFrom(lists).Draw(t, "from"), rapid.SampledFrom(lists).Draw(t, "to")
			text := d.between(from, to, true)
			require.Equal(t, d.between(from, to, false), text)
			var change struct {
				Put    []discovery.Endpoint
				Remove []string
			}
			require.NoError(t, json.Unmarshal([]byte("{"+text+"}"), &change))
			got := slices.DeleteFunc(slices.Clone(from), func(e discovery.Endpoint) bool {
				return slices.Contains(change.Remove, e.InstanceID) || slices.ContainsFunc(change.Put, func(p discovery.Endpoint) bool { return p.InstanceID == e.InstanceID })
			})
			got = append(got, change.Put...)
			slices.SortFunc(got, func(a, b discovery.Endpoint) int { return strings.Compare(a.InstanceID, b.InstanceID) })
			require.Equal(t, brief(to), brief(got))
		}
	})
}

// brief is what tells two versions of an instance apart.
func brief(list []discovery.Endpoint) (all []string) {
	for _, e := range list {
		all = append(all, fmt.Sprint(e.InstanceID, e.Weight, e.Revision))
	}
	return all
}

// FuzzDiscoverQuery looks for a query that is answered with anything but an answer or a problem of the caller.
func FuzzDiscoverQuery(f *testing.F) {
	for _, seed := range []string{"", "zone=a", "tag=x&tag=y", "meta=a%3Db", "choose=3&key=k", "index=1&wait=1ns", "at=2026-01-01T00:00:00Z", "at=7", "include=draining&prefer=z", "%zz", "meta", "choose=18446744073709551615", "minRevision=1"} {
		f.Add(seed)
	}
	c := discovery.New(discovery.Options{})
	s := &Service{rest: newTestDoor(), catalog: c}
	rt := s.Routes(s.rest.Router())[0]
	var read *discovery.Query
	rt.Serve = func(q *rest.Request) error {
		dq, p := s.filter(q)
		if p == nil && q.Query.Get("at") != "" {
			_, p = readMoment(q.Query.Get("at"))
		}
		if p != nil {
			return p
		}
		read = &dq
		return nil
	}
	if err := s.rest.Router().Register(rt); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		read = nil
		s.rest.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/discover/web?"+values.Encode(), nil))
		if read == nil {
			return
		}
		dq := *read
		if dq.Choose < 0 || dq.Choose > 1<<20 || len(dq.Tags) > 16 || len(dq.Meta) > 16 || dq.Key != "" && dq.Choose == 0 {
			t.Fatalf("%q was read as %+v", query, dq)
		}
		require.Empty(t, c.Find(dq).Endpoints)
	})
}
