package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// canaries are secrets that are nowhere else, by what they are.
type canaries struct {
	t     *testing.T
	words map[string]string
	found map[string]map[string]bool // what, by where
}

// of is the secret of a kind.
func (c *canaries) of(what string) string {
	if c.words[what] == "" {
		c.words[what] = "canary" + strings.ReplaceAll(what, " ", "") + "4711"
	}
	return c.words[what]
}

// look notes which secrets are in what stands somewhere.
func (c *canaries) look(where string, text []byte) {
	for what, word := range c.words {
		if bytes.Contains(text, []byte(word)) || bytes.Contains(text, []byte(base64.StdEncoding.EncodeToString([]byte(word)))) {
			if c.found[what] == nil {
				c.found[what] = map[string]bool{}
			}
			c.found[what][where] = true
		}
	}
}

// meant is where secrets are to be found: what is written there is kept and shown as it came, and SECURITY.md says so.
var meant = map[string]string{
	"service env":          `^(stream (KV_services|COMMANDS|EFFECTS)|file (nats|process/default.*/state.json).*|GET /v1/services(/\{id\}(/stored-value)?)?|cli service get)$`,
	"check header":         `^(stream (KV_instances|COMMANDS)|file nats/.*|GET /v1(/services/\{service\})?/instances(/\{id\}(/stored-value)?)?|cli instance get)$`,
	"published row":        `^(stream OUTBOX|file nats/.*)$`,
	"dead letter":          `^(stream (COMMANDS|DEAD_LETTERS)|file nats/.*|GET /v1/dead-letters(/\{seq\})?|cli dlq show)$`,
	"request over NATS":    `^(stream COMMANDS|file nats/.*/COMMANDS/.*)$`,
	"reason of the caller": `^(stream (KV_services|COMMANDS|EVENTS)|file nats/.*|GET /v1/services/\{id\}/(events|stored-value)|cli service events)$`,
}

// A secret stands wherever one can be put, things succeed and fail, and then it is nowhere but where it is meant to be.
func TestCanaries(t *testing.T) {
	t.Parallel()
	c := &canaries{t: t, words: map[string]string{}, found: map[string]map[string]bool{}}
	r := c.start()
	r.live()
	r.search()
	for what, places := range c.found {
		for where := range places {
			if meant[what] == "" || !regexp.MustCompile(meant[what]).MatchString(where) {
				t.Errorf("the secret of %q is in: %s", what, where)
			}
		}
	}
	for what := range meant {
		require.NotEmpty(t, c.found[what], "the search finds what is there: %s", what)
	}
}

// rig is a server whose configuration is full of secrets.
type rig struct {
	*canaries
	p           *launched
	dir, config string
	cert        string
	url, nats   string
	client      *http.Client
	db          *pgx.Conn
	ill         string // where nobody is well

	mu     sync.Mutex
	traces [][]byte
}

func (c *canaries) start() *rig {
	t := c.t
	r := &rig{canaries: c, dir: t.TempDir()}
	host := r.database()
	sink := httptest.NewServer(http.HandlerFunc(r.trace))
	t.Cleanup(sink.Close)
	ill := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(ill.Close)
	r.ill = strings.TrimPrefix(ill.URL, "http://")
	cert, key := certificate(t)
	r.cert = cert
	raw, err := os.ReadFile(key)
	require.NoError(t, err)
	block, _ := pem.Decode(raw)
	c.words["TLS key"] = base64.StdEncoding.EncodeToString(block.Bytes)[20:50]
	token := sha256.Sum256([]byte(c.of("token")))
	r.config = write(t, "instar.yaml", fmt.Sprintf(`
auth:
  tokens: [{name: ops, hash: 'sha256:%x', role: admin}]
  oidc: {issuer: 'http://127.0.0.1:1', clientId: instar, clientSecretFile: %s, url: 'http://127.0.0.1:2', roles: [{value: admins, role: admin}]}
nats: {users: [{name: ops, password: %s, role: admin}]}
gateways: {process: {templates: {told: {command: [%s, run-template, hello], env: {TOLD: %s}}, fails: {command: [/bin/sh, -c, 'exit 7'], env: {TOLD: %s}}}}}
outbox:
  sources:
    - {name: works, dsn: 'postgres://relay:%s@%s/postgres', types: [order.paid], unknownTypes: park, baseBackoff: 1h, maxBackoff: 1h}
    - {name: refused, dsn: 'postgres://relay:%s@%s/postgres'}
    - {name: gone, dsnFile: %s}
    - {name: broken, dsn: 'postgres://relay:%s@127.0.0.1:port/x'}
`, token, write(t, "client-secret", c.of("OIDC client")), c.of("NATS user"), os.Args[0], c.of("template"), c.of("template"), c.of("DSN"), host, c.of("wrong DSN"), host,
		write(t, "dsn", "host=127.0.0.1 port=1 user=u dbname=d password="+c.of("DSN file")), c.of("broken DSN")))
	r.p = launchWith(t, []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + sink.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=" + c.of("OTLP header"), "OTEL_BSP_SCHEDULE_DELAY=50", "PGPASSWORD=" + c.of("environment"),
	}, "serve", "--config", r.config, "--data", r.dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--http-cert", cert, "--http-key", key,
		"--durability", "os", "--log-level", "debug", "--log-format", "json", "--probe-any-request", "--stop-services")
	addresses := regexp.MustCompile(`"msg":"ready","http":"([^"]+)","nats":"([^"]+)"`)
	require.Eventually(t, func() bool { return addresses.MatchString(r.p.out.String()) }, time.Minute, 10*time.Millisecond)
	at := addresses.FindStringSubmatch(r.p.out.String())
	r.url, r.nats = at[1], at[2]
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(cert)
	require.NoError(t, err)
	require.True(t, pool.AppendCertsFromPEM(pem))
	r.client = &http.Client{
		Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return r
}

// database has an outbox and a role whose password is a secret; its address is returned.
func (r *rig) database() string {
	cluster, err := postgres.Start(r.t.Context(), postgres.Options{Dir: passable(r.t), Config: map[string]string{"fsync": "off"}})
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, cluster.Stop(context.Background())) })
	dsn := cluster.DSN("postgres")
	require.NoError(r.t, outbox.Init(r.t.Context(), dsn, "", outbox.Settings{Mode: outbox.Log}))
	r.db, err = pgx.Connect(r.t.Context(), dsn)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = r.db.Close(context.Background()) })
	_, err = r.db.Exec(r.t.Context(), fmt.Sprintf(`create role relay superuser login password '%s'`, r.of("DSN")))
	require.NoError(r.t, err)
	u, err := url.Parse(dsn)
	require.NoError(r.t, err)
	return u.Host
}

// trace takes spans, and refuses half of them.
func (r *rig) trace(w http.ResponseWriter, req *http.Request) {
	raw, _ := io.ReadAll(req.Body) // it is not compressed unless that is asked for
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.traces = append(r.traces, raw); len(r.traces)%2 == 0 {
		w.WriteHeader(http.StatusForbidden)
	}
}

// ask makes a request and looks at its answer, if the place has a name.
func (r *rig) ask(method, path, place, token, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	if place == "" {
		return resp.StatusCode, string(raw)
	}
	r.look(method+" "+place, raw)
	for name, values := range resp.Header {
		r.look(method+" "+place, []byte(name+": "+strings.Join(values, ",")))
	}
	return resp.StatusCode, string(raw)
}

// becomes waits for a word in an answer.
func (r *rig) becomes(path, want string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, body := r.ask("GET", path, "", r.of("token"), "")
		return strings.Contains(body, want)
	},
		30*time.Second, 20*time.Millisecond, "%s: %s", path, want)
}

// escapes would clear a terminal, and begin a new line of a log.
const escapes = "\x1b[2J\x9b2J\u009b2J "

// live is what users do, and what goes wrong for them.
func (r *rig) live() {
	t, token := r.t, r.of("token")
	post := func(want int, path, body string) {
		t.Helper()
		status, said := r.ask("POST", path, "/"+path, token, body)
		require.Equal(t, want, status, "%s: %s", path, said)
	}
	spec := func(image string) string {
		return fmt.Sprintf(`{"spec":{"image":%q,"env":{"TOLD":%q}},"policy":{"failureThreshold":1}}`, image, r.of("service env"))
	}
	post(200, "/v1/services/told/create?settle=30s", spec("told"))
	post(200, "/v1/services/told/update?settle=30s", strings.Replace(spec("told"), "image", `forceReplace":true,"image`, 1))
	post(409, "/v1/services/told/create", spec("told"))
	post(200, "/v1/services/fails/create?settle=30s", spec("fails"))
	wrong := r.of("wrong request")
	for _, body := range []string{`{"spec":{"image":"told","nope":"` + wrong + `"}}`, `{"spec":"` + wrong + `"}`, `{"spec":{"image":"told","port":"` + wrong + `"}}`, `{"spec":` + wrong} {
		status, said := r.ask("POST", "/v1/services/wrong/create", "wrong request", token, body)
		require.Contains(t, []int{400, 422}, status, said)
	}
	status, _ := r.ask("GET", "/v1/services?limit="+wrong+"&state="+wrong, "wrong request", token, "")
	require.Equal(t, 422, status)
	status, _ = r.ask("GET", "/v1/services", "wrong token", r.of("wrong token"), "")
	require.Equal(t, 401, status)
	status, _ = r.ask("GET", "/v1/session/oidc?to=/ui/", "sign-in", "", "")
	require.Equal(t, 303, status)
	status, _ = r.ask("GET", "/v1/session/oidc/callback?code="+wrong+"&state="+wrong, "sign-in", "", "")
	require.Equal(t, 303, status)
	post(202, "/v1/register", fmt.Sprintf(`{"serviceName":"web","instanceId":"ill","nodeAddress":%q,"check":{"type":"http","interval":"1s","headers":{"Authorization":%q}}}`, r.ill, r.of("check header")))

	_, err := nats.Connect(r.nats, nats.UserInfo("ops", r.of("wrong NATS password")))
	require.ErrorIs(t, err, nats.ErrAuthorization)
	nc := r.connect()
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: "instar.cmd.service.default.lost.create", Data: []byte(`{"spec":"` + r.of("dead letter") + `"}`), Header: nats.Header{"Nats-Msg-Id": {"elsewhere"}}}))
	answer, err := nc.Request("instar.api.cmd.service.default.wrong.create", []byte(`{"spec":"`+r.of("request over NATS")+`"}`), 10*time.Second)
	require.NoError(t, err)
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: "instar.cmd.service.default.told.refresh", Header: nats.Header{"Instar-Actor": {escapes}, "Instar-Reason": {escapes + r.of("reason of the caller")}}}))
	r.look("answer over NATS", append(answer.Data, fmt.Sprint(answer.Header)...))

	for _, row := range [][2]string{{"order.paid", r.of("published row")}, {"order.unknown", r.of("parked row")}} {
		_, err := r.db.Exec(t.Context(), `select outbox_append('order', $1, $2, jsonb_build_object('secret', $3::text))`, row[1][:8], row[0], row[1])
		require.NoError(t, err)
	}
	r.becomes("/v1/outbox", `"FAILED":1`)
	r.becomes("/v1/dead-letters", "default.lost")
	r.becomes("/v1/services/told/events", r.of("reason of the caller"))
	for _, source := range []string{"refused", "gone", "broken"} {
		r.becomes("/v1/relays/"+source, `"problem"`)
	}
}

func (r *rig) connect() *nats.Conn {
	nc, err := nats.Connect(r.nats, nats.UserInfo("ops", r.of("NATS user")))
	require.NoError(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

// search looks everywhere.
func (r *rig) search() {
	r.searchStreams()
	r.searchAnswers()
	r.searchCommands()
	require.NoError(r.t, r.p.cmd.Process.Signal(os.Interrupt))
	select {
	case <-r.p.ends:
	case <-time.After(30 * time.Second):
		r.t.Fatal("it does not stop")
	}
	r.look("log", []byte(r.p.out.String()))
	for _, line := range strings.Split(strings.TrimSpace(r.p.out.String()), "\n") {
		require.True(r.t, json.Valid([]byte(line)), "one record in each line: %s", line)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NotEmpty(r.t, r.traces)
	r.look("traces", bytes.Join(r.traces, nil))
	require.NoError(r.t, filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		r.look("file "+strings.TrimPrefix(path, r.dir+"/"), raw)
		return err
	}))
}

func (r *rig) searchStreams() {
	js, err := jetstream.New(r.connect())
	require.NoError(r.t, err)
	read := 0
	for info := range js.ListStreams(r.t.Context()).Info() {
		s, err := js.Stream(r.t.Context(), info.Config.Name)
		require.NoError(r.t, err)
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(r.t.Context(), seq)
			if err != nil { // removed
				continue
			}
			read++
			r.look("stream "+info.Config.Name, fmt.Appendf(nil, "%s\n%v\n%s", m.Subject, m.Header, m.Data))
		}
	}
	require.Greater(r.t, read, 50)
}

// searchAnswers reads all that the document of the API has to read.
func (r *rig) searchAnswers() {
	_, text := r.ask("GET", "/openapi.json", "/openapi.json", "", "")
	doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
	require.NoError(r.t, err)
	for _, names := range [][]string{
		{"{id}", "told", "{service}", "web", "{instanceId}", "ill", "{machine}", "service", "{seq}", "1", "{operation}", "x"},
		{"/v1/services/{service}/instances/{id}", "/v1/services/web/instances/ill", "{id}", "refused", "{service}", "web"},
		{"/v1/services/{id}", "/v1/services/fails", "{id}", "works"},
	} {
		for path, item := range doc.Paths.Map() {
			filled := strings.NewReplacer(names...).Replace(path)
			if item.Get == nil || strings.HasSuffix(path, "/watch") || strings.Contains(filled, "{") {
				continue
			}
			r.ask("GET", filled, path, r.of("token"), "")
			r.ask("GET", filled+"?include=data", path, r.of("token"), "")
		}
	}
	status, _ := r.ask("GET", "/readyz?verbose", "/readyz", r.of("token"), "")
	require.Equal(r.t, 200, status)
}

// searchCommands asks with the command line, with the token and with a wrong one.
func (r *rig) searchCommands() {
	for _, line := range []string{
		"doctor --config " + r.config, "relay ls", "relay get refused", "relay events broken", "outbox status", "service get told", "service events told", "service ls", "instance get web/ill", "instance events web/ill",
		"dlq ls", "dlq show 1", "node ls",
	} {
		for _, token := range []string{"token", "wrong token"} {
			var out lockedbuffer.Buffer
			words := strings.Fields(line)
			code := execute(append(words, "--server", r.url, "--token", r.of(token), "--ca", r.cert), strings.NewReader(""), &out, &out)
			require.NotEqual(r.t, command.ExitUsage, code, out.String())
			require.NotContains(r.t, out.String(), "\x1b", "it could steer the terminal: %s", line)
			r.look("cli "+strings.Join(words[:min(2, len(words))], " "), []byte(out.String()))
		}
	}
}

// What is wrong in a configuration, or about a server that is to be attached, is told without the secret that stands there.
func TestCanariesOfAStart(t *testing.T) {
	t.Parallel()
	const number, word = "471100047110", "canary4711"
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: embedded.OS, Users: []embedded.User{{Name: "ops", Password: "other", Role: embedded.RoleAdmin}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Shutdown(context.Background())) })
	cert, _ := certificate(t)
	for name, file := range map[string]string{
		"ANumberAsThePasswordOfAUser":  `nats: {users: [{name: a, password: ` + number + `, role: admin}]}`,
		"ANumberAsThePasswordOfRoutes": `cluster: {password: ` + number + `}`,
		"ANumberInATemplate":           `gateways: {process: {templates: {a: {command: [x], env: {A: ` + number + `}}}}}`,
		"AListAsADSN":                  `outbox: {dsn: [` + word + `]}`,
		"AMappingAsADSN":               `outbox: {sources: [{name: a, dsn: {` + "x: " + word + `}}]}`,
		"ADSNThatIsNone":               `outbox: {dsn: "postgres://u:` + word + `@h:port/x"}`,
		"ATokenInClear":                `auth: {tokens: [{name: a, hash: ` + word + `, role: read}]}`,
		"AUserWithoutARole":            `nats: {users: [{name: a, password: ` + word + `}]}`,
		"BrokenYAML":                   `nats: {users: [{name: a, password: "` + word + `}]}`,
		"ARouteThatIsNone":             `cluster: {name: blue, listen: "127.0.0.1:0", routes: "nats://u:` + word + `@h:port"}`,
		"AServerThatIsNone":            `nats: {url: "nats://u:` + word + `@h:port"}`,
		"AWrongPassword":               `nats: {url: "nats://ops:` + word + `@` + strings.TrimPrefix(server.ClientURL(), "nats://") + `"}`,
		"CredentialsThatAreNone":       `nats: {url: "` + server.ClientURL() + `", creds: "` + write(t, "creds", word) + `"}`,
		"AServerThatIsCutShort":        `nats: {url: "nats://u:` + word + `/x@h:1"}`,
		"AKeyThatIsNone":               `http: {tls: {cert: "` + cert + `", key: "` + write(t, "key", "-----BEGIN EC PRIVATE KEY-----\n"+word+"\n-----END EC PRIVATE KEY-----\n") + `"}}`,
		"RoutesThatDoNotAnswer":        `cluster: {name: blue, listen: "127.0.0.1:0", routes: "nats://u:` + word + `@127.0.0.1:1", user: u, password: ` + word + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := launch(t, "serve", "--config", write(t, "instar.yaml", file), "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--gateway", "simulated", "--durability", "os", "--log-level", "debug")
			require.Eventually(t, func() bool {
				select {
				case <-p.ends:
					return true
				default: // members wait for each other, and relays go on trying
					said := p.out.String()
					return strings.Contains(said, "connect to route") || strings.Contains(said, "cannot read the DSN")
				}
			}, 40*time.Second, 20*time.Millisecond)
			_ = p.cmd.Process.Kill() // it may have ended
			require.NotEmpty(t, p.out.String())
			require.NotContains(t, p.out.String(), word)
			require.NotContains(t, p.out.String(), number)
		})
	}
}

// So is what is wrong about what a command of the client was given.
func TestCanariesOfTheClient(t *testing.T) {
	t.Parallel()
	const word = "canary4711"
	for _, dsn := range []string{"postgres://u:" + word + "@h:port/x", "postgres://u:" + word + "@127.0.0.1:1/x", "host=127.0.0.1 port=1 password=" + word, "host=127.0.0.1 port=x password='" + word + " '", "postgres://u:" + word + "/x@h/x"} {
		for _, verb := range []string{"init", "status", "tail", "redrive", "relay"} {
			var out lockedbuffer.Buffer
			require.NotZero(t, execute([]string{"outbox", verb, "--dsn", dsn}, strings.NewReader(""), &out, &out))
			require.NotEmpty(t, out.String())
			require.NotContains(t, out.String(), word, "%s %s", verb, dsn)
		}
	}
	for _, server := range []string{"http://u:" + word + "@h:port", "http://u:" + word + "@127.0.0.1:1", "http://u:" + word + "/x@h"} {
		var out lockedbuffer.Buffer
		require.NotZero(t, execute([]string{"service", "ls", "--server", server, "--token", word}, strings.NewReader(""), &out, &out))
		require.NotContains(t, out.String(), word, server)
	}
}
