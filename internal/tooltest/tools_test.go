package tooltest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLintersOfOpenAPI(t *testing.T) {
	for _, file := range []string{"openapi.json", "openapi.yaml"} {
		doc, _ := get(t, "/"+file, file)
		t.Run("Redocly "+file, func(t *testing.T) { output(t, filepath.Dir(doc), tool(t, "redocly"), "lint", doc) })
		t.Run("Spectral "+file, func(t *testing.T) {
			rules, err := filepath.Abs(filepath.Join("testdata", "spectral.yaml"))
			require.NoError(t, err)
			output(t, filepath.Dir(doc), tool(t, "spectral"), "lint", doc, "-r", rules, "--fail-severity", "error")
		})
	}
}

// Clients that are generated compile, and have no pointer to a list that is always there.
func TestGeneratorsOfClients(t *testing.T) {
	doc, _ := get(t, "/openapi.json", "openapi.json")
	made := filepath.Join(".generated", t.Name()) // inside the module, for what its code imports
	t.Cleanup(func() { _ = os.RemoveAll(".generated") })
	require.NoError(t, os.MkdirAll(filepath.Join(made, "oapi"), 0o700))
	t.Run("ogen", func(t *testing.T) {
		output(t, "", "go", "run", "github.com/ogen-go/ogen/cmd/ogen", "--target", filepath.Join(made, "ogen"), "--package", "ogen", "--config", filepath.Join("testdata", "ogen.yml"), doc)
		output(t, "", "go", "build", "./"+filepath.Join(made, "ogen"))
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		file := filepath.Join(made, "oapi", "client.go")
		output(t, "", "go", "run", "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen", "-generate", "types,client", "-package", "oapi", "-o", file, doc)
		output(t, "", "go", "build", "./"+filepath.Join(made, "oapi"))
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotRegexp(t, `Items +\*\[\]`, string(text))
	})
	t.Run("openapi-typescript", func(t *testing.T) {
		types := filepath.Join(t.TempDir(), "client.ts")
		output(t, "", tool(t, "openapi-typescript"), doc, "-o", types)
		output(t, "", tool(t, "tsc"), "--noEmit", "--strict", types)
	})
}

func TestParserOfAsyncAPI(t *testing.T) {
	doc, _ := get(t, "/asyncapi.json", "asyncapi.json")
	require.Regexp(t, `^[1-9]\d\d channels`, output(t, "", node(t, "@asyncapi/parser"), filepath.Join("testdata", "asyncapi.mjs"), doc))
}

// The page of documents shows every operation of the document, whatever its method and group.
func TestPageOfDocuments(t *testing.T) {
	_, raw := get(t, "/openapi.json", "openapi.json")
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &doc))
	var want []string
	for _, item := range doc.Paths {
		for _, op := range item {
			want = append(want, op.OperationID)
		}
	}
	require.Contains(t, want, "heartbeat")
	require.ElementsMatch(t, want, lines(output(t, "", node(t, "jsdom"), filepath.Join("testdata", "page.mjs"), run.url)))
}

func TestPromtool(t *testing.T) {
	promtool := tool(t, "promtool")
	_, page := get(t, "/metrics", "metrics")
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(string(page))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	rules := expressions(t)
	at := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(at, rules, 0o600))
	require.Contains(t, output(t, "", promtool, "check", "rules", at), "SUCCESS")
}

// expressions are those of the dashboard, as rules, with the variables of Grafana filled in.
func expressions(t *testing.T) []byte {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", "instar.json"))
	require.NoError(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	require.NoError(t, json.Unmarshal(text, &board))
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "1m", "$node", ".*").Replace(target.Expr)
			rules = append(rules, rule{"panel:expr" + strconv.Itoa(len(rules)), expr})
		}
	}
	out, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}}) // which is YAML, too
	require.NoError(t, err)
	return out
}

func TestDnsperf(t *testing.T) {
	dnsperf := tool(t, "dnsperf")
	instar(t, "instance", "register", "web/a", "--node-address", "127.0.0.1:8081")
	instar(t, "instance", "wait", "web/a", "--for", "state=active.healthy")
	questions := filepath.Join(t.TempDir(), "questions")
	require.NoError(t, os.WriteFile(questions, []byte("web.instar. A\n_web._tcp.web.instar. SRV\n"), 0o600))
	host, port, _ := strings.Cut(run.dns, ":")
	for _, mode := range []string{"udp", "tcp"} {
		t.Run(mode, func(t *testing.T) {
			out := output(t, "", dnsperf, "-s", host, "-p", port, "-m", mode, "-d", questions, "-c", "4", "-l", "3", "-Q", "5000")
			sent, lost := number(t, out, `Queries sent: +(\d+)`), number(t, out, `Queries lost: +(\d+)`)
			require.Greater(t, sent, 1000, out)
			require.Zero(t, lost, out)
		})
	}
}

func number(t *testing.T, text, pattern string) int {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, text)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// A worker in Node takes all tasks of services and brings one through its life; an SDK of CloudEvents reads its events.
func TestNode(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), node(t, "nats"), filepath.Join("testdata", "worker.mjs"), run.nats)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-done; t.Log(said.String()) })
	for _, args := range [][]string{{"create", "web", "--image", "anything", "--wait"}, {"update", "web", "--image", "another", "--wait"}} {
		instar(t, append([]string{"service"}, args...)...)
	}
	t.Run("CloudEvents", func(t *testing.T) {
		out := output(t, "", node(t, "cloudevents"), filepath.Join("testdata", "events.mjs"), run.nats, "instar.evt.service.default.web.>")
		require.Contains(t, out, `"decoded":true`)
		require.Contains(t, out, `"version":1`)
	})
	instar(t, "service", "delete", "web", "-y", "--wait")
}
