package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
)

var (
	metricName  = regexp.MustCompile(`\b(?:instar|process|go)_[a-z_]*[a-z]\b`)
	labelNames  = regexp.MustCompile(`by \(([a-z_, ]+)\)|[{,]\s*([a-z_]+)(?:=~|!=|!~|=)"`)
	metricRow   = regexp.MustCompile("(?m)^\\| `(instar_[a-z_]+)` \\| (\\w+) \\| ([^|]*)\\|")
	metricType  = regexp.MustCompile(`(?m)^# TYPE (\S+) `)
	histogramOf = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// appear are the metrics that a server without a database or domains does not show: those of outboxes, of the proxy, and of certificates. Whatever counts trouble
// is there before, at 0.
var appear = []string{
	"instar_audit_export_problems_total", "instar_certificates_unrenewed",
	"instar_outbox_attempts", "instar_outbox_fence_wait_seconds", "instar_outbox_lag", "instar_outbox_oldest_seconds", "instar_outbox_parked", "instar_outbox_published_total",
	"instar_outbox_restarts_total", "instar_outbox_rows", "instar_proxy_backends", "instar_proxy_requests_total", "instar_proxy_upgraded",
	"instar_tenant_leftovers",
}

// The dashboard, and the alerts, ask only for what a server has: names from its own page, labels and kinds from the table of
// docs/operations.md, which is tested against the program.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	kinds, labels := documentedMetrics(t)
	shown := scrape(t)
	for _, expr := range append(dashboard(t), alerts(t)...) {
		names := metricName.FindAllString(expr, -1)
		require.NotEmpty(t, names, expr)
		known := []string{"instance", "le"}
		for _, name := range names {
			base := name
			if kinds[histogramOf.ReplaceAllString(name, "")] == "histogram" {
				base = histogramOf.ReplaceAllString(name, "")
				require.NotEqual(t, base, name, "%s is a histogram: %s", name, expr)
			}
			require.True(t, slices.Contains(shown, base) || slices.Contains(appear, base), "nothing has the metric %s: %s", name, expr)
			if strings.HasPrefix(base, "instar_") {
				require.Contains(t, kinds, base)
				require.Equal(t, kinds[base] == "counter" || kinds[base] == "histogram", strings.Contains(expr, "rate(") || strings.Contains(expr, "increase("), "a rate is of a counter: %s", expr)
			}
			known = append(known, labels[base]...)
		}
		for _, m := range labelNames.FindAllStringSubmatch(expr, -1) {
			for _, l := range strings.Split(m[1]+m[2], ", ") {
				require.Contains(t, known, l, expr)
			}
		}
	}
}

func TestDashboardHasEveryMetric(t *testing.T) {
	t.Parallel()
	all := strings.Join(dashboard(t), "\n")
	kinds, _ := documentedMetrics(t)
	for name := range kinds {
		require.Regexp(t, `\b`+name+`(_bucket|_count)?\b`, all)
	}
}

// A panel of what fails is not empty while nothing does, and shows the first failure.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway, c.Discovery.XDS = config.GatewayExternal, "127.0.0.1:0" })
	page := body(t, w.url+"/metrics")
	for _, series := range []string{
		`instar_http_requests_total{method="GET",route="/v1/services/{id}",status="500"} 0`, `instar_http_requests_total{method="GET",route="other",status="404"} 0`,
		`instar_deadletters_total{consumer="fx-service-apply"} 0`, `instar_consumer_restarts_total{consumer="p31"} 0`, `instar_view_events_skipped_total{view="view-service-status"} 0`,
		`instar_cas_conflicts_total{machine="service"} 0`, `instar_reconciled_total{machine="instance",problem="value-lost"} 0`,
		`instar_action_attempts_total{outcome="failed",provider="service.apply"} 0`, `instar_transition_rejections_total{machine="service",reason="guard-rejected"} 0`,
		`instar_transitions_total{event="applied",from="CREATING",machine="service",to="CREATING"} 0`,
		`instar_panics_total{where="http"} 0`,
	} {
		require.Contains(t, page, "\n"+series+"\n")
	}
	kinds, _ := documentedMetrics(t)
	for name, kind := range kinds {
		if kind == "counter" && !slices.Contains(appear, name) && name != "instar_heartbeats_total" { // which is told once a second
			require.Contains(t, page, "\n"+name)
		}
	}
}

// dashboard reads the expressions of the panels.
func dashboard(t *testing.T) []string {
	t.Helper()
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(deployed(t, filepath.Join("grafana", "instar.json"))), &d))
	var all []string
	ids := map[int]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// alerts reads the expressions of the rules.
func alerts(t *testing.T) []string {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      struct{ Severity string }
				Annotations struct{ Summary, Description string }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, filepath.Join("prometheus", "instar.rules.yaml"))), &rules))
	var all []string
	for _, r := range rules.Groups[0].Rules {
		require.NotEmpty(t, r.Annotations.Summary, r.Alert)
		require.NotEmpty(t, r.Annotations.Description, "%s says what to do", r.Alert)
		require.Contains(t, []string{"page", "ticket"}, r.Labels.Severity, r.Alert)
		if !strings.HasPrefix(r.Expr, "up{") { // of Prometheus itself
			all = append(all, r.Expr)
		}
	}
	require.NotEmpty(t, all)
	return all
}

func documentedMetrics(t *testing.T) (kinds map[string]string, labels map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	kinds, labels = map[string]string{}, map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(text), -1) {
		kinds[row[1]] = row[2]
		labels[row[1]] = strings.Split(strings.TrimSpace(row[3]), ", ")
	}
	require.NotEmpty(t, kinds)
	return kinds, labels
}

// scrape reads the page of a server that has done a little of everything.
func scrape(t *testing.T) []string {
	t.Helper()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Discovery.XDS = "127.0.0.1:0" })
	w.must("service", "wait", "hello", "--for", "state=READY")
	w.must("instance", "register", "web/a", "--node-address", "127.0.0.1:1", "--set", "check.type=tcp", "--set", "check.interval=100ms")
	w.must("instance", "wait", "web/a", "--for", "state=active.unhealthy")
	code, _ := w.cli("instance", "cancel-drain", "web/a")
	require.Equal(t, command.ExitConflict, code)
	var names []string
	for _, beat := range []string{"web/instances/a", "web/instances/none"} { // heard by the owner at some time
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+"/v1/services/"+beat+"/heartbeat", nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	require.Eventually(t, func() bool {
		names = scraped(t, w.url+"/metrics")
		return slices.Contains(names, "instar_heartbeats_total")
	}, 15*time.Second, 20*time.Millisecond)
	return names
}

func scraped(t *testing.T, url string) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var names []string
	for _, m := range metricType.FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}
