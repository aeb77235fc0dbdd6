package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/server/builtin"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"service", "entity", "discover"}, os.Args[1]) { // the command line, started by a test
		os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	testenv.Main(m)
}

// execute runs the command line with the machines that ship.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Main(args, stdin, stdout, stderr, builtin.Options())
}

// fake speaks the surface of the API and remembers what it was asked.
type fake struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	seen     map[string]int // by path
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{seen: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/services/{id}/{command}", f.command)
	mux.HandleFunc("GET /v1/services", f.list)
	mux.HandleFunc("GET /v1/services/{id}", f.entity)
	mux.HandleFunc("GET /v1/services/{id}/events", f.events)
	mux.HandleFunc("GET /v1/services/{id}/watch", f.watch)
	mux.HandleFunc("GET /v1/services/{id}/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"state":"READY","snapshot":{"url":"http://127.0.0.1:9","traffic":[],"on":"true"}}`)
	})
	mux.HandleFunc("GET /v1/services/{id}/revisions", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"items":[{"name":"web-00002","ready":"True"},{"name":"web-00001","ready":"False","reason":"ExitCode"}]}`)
	})
	mux.HandleFunc("GET /v1/repositories/{id}", func(w http.ResponseWriter, r *http.Request) { // it changes all the time
		answer(w, 200, fmt.Sprintf(`{"machine":"repository","namespace":"default","id":"shop","state":"ready","version":3,"generation":2,"revision":%d,"labels":{"team":"web"},"data":{"url":"/srv/git/shop","analyses":["lines"],"weight":100,"tasks":{"queued":1}}}`, 40+f.times(r.URL.Path)/2))
	})
	mux.HandleFunc("GET /v1/repositories/shop/tasks/lint", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"machine":"task","namespace":"default","parent":"shop","id":"lint","state":"pending","version":3,"generation":2,"revision":7,"data":{"type":"lint","cron":"0 3 * * *","timeZone":"Europe/Berlin"}}`)
	})
	mux.HandleFunc("POST /v1/repositories/shop/tasks/lint/schedule", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"outcome":"applied","state":"pending","version":4,"revision":8,"generation":3,"commandId":"c1"}`)
	})
	mux.HandleFunc("POST /v1/repositories/{id}/configure", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-Match") == `"40"` {
			answer(w, 412, problemJSON("precondition-failed", 412, "the entity is at another revision", ""))
			return
		}
		answer(w, 200, `{"outcome":"applied","state":"ready","version":4,"revision":42,"generation":3,"commandId":"c1"}`)
	})
	mux.HandleFunc("GET /v1/watch", f.watch)
	mux.HandleFunc("GET /v1/machines", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"items":[{"name":"lamp","plural":"lamps","doc":"It shines.","states":[{"name":"LIT","doc":"It shines."}],"commands":[{"name":"light","from":[""],"birth":true}],"edges":[{"from":"","on":"light","to":"LIT"}]},{"name":"service","plural":"services"}]}`)
	})
	mux.HandleFunc("POST /v1/lamps/{id}/light", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"outcome":"applied","state":"LIT","version":1,"revision":5,"generation":1,"commandId":"k"}`)
	})
	mux.HandleFunc("GET /v1/lamps/{id}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"machine":"lamp","namespace":"default","id":"desk","state":"LIT","version":1,"generation":1,"revision":5,"data":{"level":3}}`)
	})
	mux.HandleFunc("GET /v1/machines/service/counts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"machine":"service","total":3,"states":{"READY":2,"FAILED":1},"parked":0,"revision":9}`)
	})
	mux.HandleFunc("GET /v1/dead-letters", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			answer(w, 200, `{"items":[`+letterJSON(7)+`],"nextCursor":"7"}`)
			return
		}
		answer(w, 200, `{"items":[`+letterJSON(9)+`],"nextCursor":""}`)
	})
	mux.HandleFunc("GET /v1/dead-letters/{seq}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("seq") != "7" {
			answer(w, 404, problemJSON("not-found", 404, "there is no such dead letter", ""))
			return
		}
		answer(w, 200, letterJSON(7))
	})
	mux.HandleFunc("POST /v1/dead-letters/{seq}/redrive", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"redriven":[7],"failed":[]}`) })
	mux.HandleFunc("POST /v1/dead-letters/drop", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"dropped":[7],"failed":[{"seq":9,"detail":"there is no such dead letter"}]}`)
	})
	mux.HandleFunc("POST /v1/dead-letters/redrive", func(w http.ResponseWriter, r *http.Request) {
		var want struct{ Seqs []uint64 }
		if json.NewDecoder(r.Body).Decode(&want) == nil && len(want.Seqs) == 2 {
			answer(w, 200, `{"redriven":[7],"failed":[{"seq":9,"detail":"there is no such dead letter"}]}`)
			return
		}
		answer(w, 200, `{"redriven":[7,9],"failed":[]}`)
	})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"openapi":"3.1.0","paths":{}}`) })
	mux.HandleFunc("GET /asyncapi.json", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"asyncapi":"3.1.0"}`) })
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, `{"status":"ok"}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 503, `{"status":"failing","checks":[{"name":"serving","ok":true},{"name":"disk","ok":false,"detail":"no write for 9s"}]}`)
	})
	f.Server = httptest.NewServer(f.record(mux))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of our own client
		r.Body = io.NopCloser(bytes.NewReader(body))
		line := r.Method + " " + r.URL.RequestURI()
		for _, h := range []string{"Authorization", "Idempotency-Key", "If-Match", "Instar-Reason", "Prefer", "Last-Event-Id"} {
			if v := r.Header.Get(h); v != "" && (h != "Idempotency-Key" || len(v) < 36) { // a made-up one differs every time
				line += " | " + h + ": " + v
			}
		}
		if len(body) > 0 {
			line += "\n  " + string(body)
		}
		f.mu.Lock()
		f.requests = append(f.requests, line)
		f.seen[r.URL.Path]++
		f.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// times is how often a path was asked for, this time included.
func (f *fake) times(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[path]
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 && strings.Contains(body, `"code"`) {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func problemJSON(code string, status int, detail, more string) string {
	return fmt.Sprintf(`{"type":"/docs#problem-%s","title":"A title","status":%d,"detail":%q,"code":%q%s}`, code, status, detail, code, more)
}

func letterJSON(seq int) string {
	return fmt.Sprintf(`{"seq":%d,"time":%q,"consumer":"engine","machine":"service","key":"default.web","subject":"instar.in.3.service.default.web.create","reason":"panic: nil map","tries":10,"body":{"spec":{"image":"hello"}}}`, seq, hoursAgo(5))
}

func hoursAgo(h int) string {
	return time.Now().Add(-time.Duration(h)*time.Hour - time.Minute).UTC().Format(time.RFC3339)
}

// entityJSON is a service in a state at a revision.
func entityJSON(id, state string, revision int) string {
	more := ""
	switch state {
	case "FAILED":
		more = `,"lastError":{"code":"RevisionFailed","message":"exit code 1","at":"` + hoursAgo(5) + `"}`
	case "CREATING":
		more = `,"effects":{"apply":{"id":"a1","try":3,"since":"` + hoursAgo(5) + `"}}`
	}
	return fmt.Sprintf(`{"machine":"service","namespace":"default","id":%q,"state":%q,"version":%d,"generation":1,"revision":%d,"since":%q,"createdAt":%q,"updatedAt":"2026-01-02T03:04:05Z","labels":{"team":"web"},"data":{"spec":{"image":"hello"},"snapshot":{"url":"http://127.0.0.1:9","serving":"web-00001"}},"conditions":[{"type":"Available","status":"True","reason":"Ready","lastTransitionTime":%q}],"allowedCommands":["update","delete"]%s}`,
		id, state, revision, revision, hoursAgo(5), hoursAgo(30), hoursAgo(5), more)
}

// command answers as the id of the entity says.
func (f *fake) command(w http.ResponseWriter, r *http.Request) {
	switch id := r.PathValue("id"); id {
	case "web", "bad", "slow":
		w.Header().Set("Link", `</ui/entities/service/`+id+`>; rel="alternate"; type="text/html"`)
		state := map[string]string{"delete": "DELETING"}[r.PathValue("command")]
		if state == "" {
			state = "CREATING"
		}
		if r.Header.Get("Prefer") == "respond-async" {
			answer(w, 202, `{"outcome":"stored","commandId":"c1","sequence":4}`)
			return
		}
		answer(w, 200, fmt.Sprintf(`{"outcome":"applied","state":%q,"version":1,"revision":2,"generation":1,"commandId":"c1"}`, state))
	case "late":
		answer(w, 202, `{"outcome":"stored","commandId":"c1","sequence":4}`)
	case "deleting":
		answer(w, 409, problemJSON("transition-not-allowed", 409, "service: update while DELETING", `,"currentState":"DELETING","allowedCommands":["refresh","purge"],"page":"/ui/entities/service/deleting"`))
	case "ready":
		answer(w, 409, problemJSON("already-exists", 409, "the service exists", `,"currentState":"READY","allowedCommands":["update"]`))
	case "claimed":
		answer(w, 409, problemJSON("already-exists", 409, "the service default.other has the key k", ""))
	case "orphan":
		answer(w, 404, problemJSON("not-found", 404, "there is no repository people; create it first", ""))
	case "moved":
		answer(w, 412, problemJSON("precondition-failed", 412, "the entity is at revision 7", ""))
	case "invalid":
		answer(w, 422, problemJSON("validation", 422, "body.spec.image: expected length >= 1", `,"errors":[{"location":"body.spec.image","message":"expected length >= 1"},{"location":"body.spec.port","message":"expected number <= 65535"}]`))
	case "reused":
		answer(w, 422, problemJSON("idempotency-key-reused", 422, "another command had this key", ""))
	case "guarded":
		answer(w, 409, problemJSON("guard-rejected", 409, "purge needs force", `,"currentState":"READY","allowedCommands":["update"]`))
	case "dead":
		answer(w, 500, problemJSON("dead", 500, "the command could not be processed", ""))
	case "down":
		answer(w, 503, problemJSON("unavailable", 503, "storage does not answer", ""))
	case "busy":
		w.Header().Set("Retry-After", "3")
		answer(w, 429, problemJSON("rate-limited", 429, "this client asks more often than its rate allows", ""))
	case "proxy":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(502)
		_, _ = io.WriteString(w, "<h1>Bad gateway</h1>")
	case "broken":
		if f.times(r.URL.Path) == 1 {
			panic(http.ErrAbortHandler) // the connection breaks; the client comes again with the same key
		}
		w.Header().Set("Idempotent-Replayed", "true")
		answer(w, 200, `{"outcome":"applied","state":"READY","version":1,"revision":2,"generation":1,"commandId":"c1"}`)
	default:
		answer(w, 404, problemJSON("not-found", 404, "there is no such service", `,"allowedCommands":["create"]`))
	}
}

func (f *fake) entity(w http.ResponseWriter, r *http.Request) {
	switch id := r.PathValue("id"); id {
	case "web":
		w.Header().Set("Link", `</ui/entities/service/web>; rel="alternate"; type="text/html"`)
		answer(w, 200, entityJSON("web", "READY", 4))
	case "bad":
		answer(w, 200, entityJSON("bad", "FAILED", 4))
	case "secret":
		answer(w, 401, problemJSON("unauthorized", 401, "this needs a bearer token", ""))
	case "forbidden":
		answer(w, 403, problemJSON("forbidden", 403, "this needs the role admin; the token has read", ""))
	case "crash":
		answer(w, 500, problemJSON("internal", 500, "an unexpected error", `,"requestId":"r1"`))
	case "slow":
		answer(w, 504, problemJSON("operation-timeout", 504, "the index has not reached minRevision yet", ""))
	default:
		answer(w, 404, problemJSON("not-found", 404, "there is no such service", `,"allowedCommands":["create"]`))
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	item := func(id, state string) string {
		whole := ""
		if r.URL.Query().Get("include") == "data" {
			whole = `,"entity":` + strings.Replace(entityJSON(id, state, 4), "2026-01-02T03:04:05Z", hoursAgo(5), 1)
		}
		return fmt.Sprintf(`{"id":%q,"namespace":"default","state":%q,"version":4,"generation":1,"revision":4,"createdAt":%q%s}`, id, state, hoursAgo(30), whole)
	}
	switch {
	case r.URL.Query().Get("label") == "team=none":
		answer(w, 200, `{"items":[],"nextCursor":"","revision":9}`)
	case r.URL.Query().Get("cursor") == "":
		answer(w, 200, `{"items":[`+item("api", "READY")+`],"nextCursor":"n2","revision":9}`)
	default:
		answer(w, 200, `{"items":[`+item("web", "FAILED")+`],"nextCursor":"","revision":9}`)
	}
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("after") == "" {
		answer(w, 200, `{"items":[{"seq":11,"type":"service.creation.requested","time":"2026-01-02T03:04:05Z","version":1,"from":"","to":"CREATING","command":"create","actor":"ci","reason":"first\u001b[31m try"}],"nextCursor":"11"}`)
		return
	}
	answer(w, 200, `{"items":[{"seq":15,"type":"service.ready","time":"2026-01-02T03:04:09Z","version":2,"from":"CREATING","to":"READY","command":"observed","actor":"observer"}],"nextCursor":""}`)
}

// watch sends what the id of the entity says; "many" breaks once and is refused the third time.
func (f *fake) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/watch" && f.times(r.URL.Path) > 2 {
		answer(w, 401, problemJSON("unauthorized", 401, "the bearer token is not known", ""))
		return
	}
	id := r.PathValue("id")
	if id == "none" {
		answer(w, 404, problemJSON("not-found", 404, "there is no such service", `,"allowedCommands":["create"]`))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	snapshot := func(revision int, item string) {
		fmt.Fprintf(w, "retry: 1\n\nid: %d\nevent: snapshot\ndata: {\"machine\":\"service\",\"revision\":%d,\"items\":[%s],\"more\":false}\n\n", revision, revision, item)
	}
	change := func(id, state string, revision int) {
		fmt.Fprintf(w, ": still here\n\nid: %d\nevent: entity\ndata: %s\n\n", revision, entityJSON(id, state, revision))
	}
	switch {
	case id == "" && r.Header.Get("Last-Event-ID") == "":
		snapshot(4, `{"id":"api","namespace":"default","state":"READY","version":4,"revision":4,"updatedAt":"2026-01-02T03:04:00Z"}`)
		change("web", "CREATING", 5)
		fmt.Fprint(w, "id: 6\nevent: entity\ndata: {\"torn") // the connection ends within an event
	case id == "":
		change("web", "READY", 6)
		fmt.Fprint(w, "event: reset\ndata: {}\n\n")
		fmt.Fprint(w, "event: deleted\ndata: {\"machine\":\"service\",\"key\":\"default.old\",\"revision\":7}\n\n")
	case id == "slow":
		snapshot(2, `{"id":"slow","state":"CREATING","revision":2,"entity":`+entityJSON("slow", "CREATING", 2)+`}`)
		_ = http.NewResponseController(w).Flush() // ResponseRecorder is not used here
		<-r.Context().Done()
	case id == "bad":
		snapshot(2, `{"id":"bad","state":"CREATING","revision":2,"entity":`+entityJSON("bad", "CREATING", 2)+`}`)
		change("bad", "FAILED", 3)
	default:
		snapshot(1, `{"id":"web","state":"READY","revision":1,"entity":`+entityJSON("web", "READY", 1)+`}`) // older than the command
		change("web", "CREATING", 2)
		change("web", "READY", 3)
	}
}

// writeFile writes a file for one test.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
