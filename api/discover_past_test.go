package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// What was found at a time, or after an event, is found again later.
func TestDiscoverAsOf(t *testing.T) {
	r := discovering(t)
	type moment struct {
		at   time.Time
		seq  uint64
		want string
	}
	var moments []moment
	last := func() uint64 {
		s, err := r.js.Stream(t.Context(), streams.EventStream)
		require.NoError(t, err)
		return s.CachedInfo().State.LastSeq
	}
	short := func(a answer) string {
		require.Equal(t, 200, a.StatusCode, string(a.body))
		var all []string
		for _, one := range a.json(t)["instances"].([]any) {
			e := one.(map[string]any)
			all = append(all, fmt.Sprintf("%s=%v@%v %v %v %v g%v", e["instanceId"], e["weight"], e["nodeAddress"], e["zone"], e["tags"], e["payload"], e["generation"]))
		}
		return strings.Join(all, "\n")
	}
	note := func(revision any) {
		t.Helper()
		require.Equal(t, 200, r.get(fmt.Sprintf("/v1/discover?minRevision=%v", revision)).StatusCode)
		now := short(r.get("/v1/discover/web"))
		moments = append(moments, moment{time.Now(), last(), now})
		require.Eventually(t, func() bool { return time.Since(moments[len(moments)-1].at) > 5*time.Millisecond }, soon, time.Millisecond)
	}
	note(0)
	note(r.healthy("web", "a", `,"zone":"north","tags":["x"],"payload":{"team":"red"}`))
	note(r.healthy("web", "b", `,"weight":40`))
	r.healthy("webb", "no", "") // another service, whose name begins alike
	note(r.post("/v1/services/web/instances/a/pin", `{"weight":7}`).json(t)["revision"])
	note(r.post("/v1/services/web/instances/b/maintenance", `{"enabled":true,"reason":"disk"}`).json(t)["revision"])
	r.post("/v1/services/web/instances/b/maintenance", `{"enabled":true}`)
	note(r.post("/v1/services/web/instances/b/maintenance", `{"enabled":false}`).json(t)["revision"])
	note(r.post("/v1/deregister/a", "").json(t)["revision"])
	note(r.register("web", "b", `,"weight":5`)["revision"])
	note(r.tell("web", "b", instance.ReportPersisted, `{}`))
	note(r.post("/v1/deregister/b?force", "").json(t)["revision"])
	r.register("web", "own", `,"weight":30,"check":{"type":"ttl","ttl":"10m"}`)
	note(r.tell("web", "own", instance.ReportPersisted, `{"passed":{"kind":"ttl","consecutive":1,"weight":55}}`)) // its first heartbeat
	note(r.tell("web", "own", instance.ReportPassed, `{"kind":"ttl","weight":66}`))

	different := map[string]bool{}
	for i, m := range moments {
		require.Equal(t, m.want, short(r.get("/v1/discover/web?at="+url.QueryEscape(m.at.UTC().Format(time.RFC3339Nano)))), "moment %d", i)
		different[m.want] = true
		if m.seq > 0 {
			a := r.get(fmt.Sprintf("/v1/discover/web?at=%d", m.seq))
			require.Equal(t, m.want, short(a), "moment %d", i)
			require.LessOrEqual(t, a.json(t)["asOf"].(map[string]any)["sequence"], float64(m.seq))
		}
	}
	require.Greater(t, len(different), 6, "the story has stages")
	at := moments[6]
	require.Equal(t, []string{"a", "b"}, found(t, r.get(fmt.Sprintf("/v1/discover/web?include=draining&at=%d", at.seq))))
	require.Equal(t, []string{"a"}, found(t, r.get(fmt.Sprintf("/v1/discover/web?meta=team%%3Dred&choose=1&key=k&at=%d", moments[2].seq))), "filters hold")
	require.Equal(t, []string{"a"}, found(t, r.get(fmt.Sprintf("/v1/discover/web?zone=north&at=%d", moments[2].seq))))
	require.Empty(t, found(t, r.get("/v1/discover/nobody?at=9999999")))
	if stored, err := r.js.Stream(t.Context(), streams.EventStream); err == nil {
		info, err := stored.Info(t.Context())
		require.NoError(t, err)
		require.Zero(t, info.State.Consumers, "none is left behind")
	}
}

// What Prometheus asks of HTTP service discovery: 200, JSON, a list of groups, targets without a scheme, valid names.
func TestPrometheusTargets(t *testing.T) {
	r := discovering(t)
	a := r.get("/v1/prometheus/targets")
	require.Equal(t, 200, a.StatusCode)
	require.Equal(t, "application/json", a.Header.Get("Content-Type"))
	require.Equal(t, "[]\n", string(a.body))
	r.healthy("web", "b", `,"zone":"north","version":"1.2","tags":["x","y"],"payload":{"team":"red","a-b.c/ü":"q\"\n"}`)
	r.register("web", "pending", "")
	r.healthy("db", "p", `,"check":{"type":"tcp"}`)
	revision := uint64(r.post("/v1/deregister/b", "").json(t)["revision"].(float64))
	require.NoError(t, r.catalog.Wait(t.Context(), revision))
	a = r.get("/v1/prometheus/targets")
	groups, err := prometheusParse(a.Header.Get("Content-Type"), a.body)
	require.NoError(t, err)
	require.Len(t, groups, 2, "those that take part, healthy or not, and those that end")
	require.Equal(t, "db", groups[0].Labels["__meta_instar_service"])
	require.Equal(t, instance.Unknown, groups[0].Labels["__meta_instar_state"])
	require.Equal(t, map[string]string{
		"__meta_instar_namespace": "default", "__meta_instar_service": "web", "__meta_instar_instance_id": "b", "__meta_instar_state": instance.Draining,
		"__meta_instar_weight": "0", "__meta_instar_generation": "1", "__meta_instar_zone": "north", "__meta_instar_version": "1.2", "__meta_instar_tags": ",x,y,",
		"__meta_instar_payload_team": "red", "__meta_instar_payload_a_b_c__": "q\"\n",
	}, groups[1].Labels)
	require.Equal(t, []string{"10.0.0.1:80"}, groups[1].Targets)
	a = r.get("/v1/prometheus/targets/db")
	groups, err = prometheusParse(a.Header.Get("Content-Type"), a.body)
	require.NoError(t, err)
	require.Len(t, groups, 1)
	// Keys that become the same label: always the same one is taken.
	r.healthy("keys", "k1", `,"payload":{"a-b":"dash","a.b":"dot","c_d":"itself","c.d":"dot"}`)
	for range 20 {
		groups, err = prometheusParse(a.Header.Get("Content-Type"), r.get("/v1/prometheus/targets/keys").body)
		require.NoError(t, err)
		require.Equal(t, []string{"dash", "itself"}, []string{groups[0].Labels["__meta_instar_payload_a_b"], groups[0].Labels["__meta_instar_payload_c_d"]})
	}
	require.Equal(t, "[]\n", string(r.get("/v1/prometheus/targets/nobody").body), "200 also for a service that nobody knows")
	require.Equal(t, "[]\n", string(r.get("/v1/prometheus/targets", "Authorization", "Bearer tenant-token").body))
	r.get("/v1/prometheus/targets", "Authorization", "").problem(t, 401, "unauthorized")
}

type group struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

var (
	prometheusType  = regexp.MustCompile(`^(?i:application\/json(;\s*charset=("utf-8"|utf-8))?)$`)
	prometheusLabel = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// prometheusParse takes an answer as strictly as Prometheus' documents of HTTP service discovery ask for.
func prometheusParse(contentType string, body []byte) ([]group, error) {
	if !prometheusType.MatchString(contentType) {
		return nil, fmt.Errorf("unsupported content type %q", contentType)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var groups []group
	if err := dec.Decode(&groups); err != nil || groups == nil {
		return nil, fmt.Errorf("not a list of groups: %w", err)
	}
	for _, g := range groups {
		for _, target := range g.Targets {
			if _, _, err := net.SplitHostPort(target); err != nil || strings.Contains(target, "/") {
				return nil, fmt.Errorf("%q is not host:port", target)
			}
		}
		for name, value := range g.Labels {
			if !prometheusLabel.MatchString(name) || !utf8.ValidString(value) {
				return nil, fmt.Errorf("%q=%q is no label", name, value)
			}
		}
	}
	return groups, nil
}
