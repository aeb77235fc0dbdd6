package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

// Which server is asked, and what it is told, by flags, contexts and the environment. Not parallel: it sets the environment.
func TestContexts(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	asked := map[string]string{} // by server: the last token and namespace
	server := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked[name] = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + "@" + r.URL.Query().Get("namespace")
			answer(w, 200, `{"items":[],"nextCursor":""}`)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	one, two := server("one"), server("two")
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := exitOf1(args...)
		require.Zero(t, code, errs)
		return out
	}
	fails := func(want int, says string, args ...string) {
		t.Helper()
		code, _, errs := exitOf1(args...)
		require.Equal(t, want, code, errs)
		require.Contains(t, errs, says)
	}
	ls := []string{"service", "ls"}
	goes := func(name, told string, more ...string) {
		t.Helper()
		clear(asked)
		must(append(ls, more...)...)
		require.Equal(t, map[string]string{name: told}, asked)
	}
	must("ctx", "ls")
	must("ctx", "add", "one", "--server", one, "--token", "t1", "-n", "shop")
	t.Setenv("INSTAR_TOKEN", "from-env")
	must("ctx", "add", "two", "--server", two+"/")
	must("ctx", "add", "bare", "--server", two, "--token", "x")
	goes("one", "t1@shop")
	goes("two", "from-env@", "--context", "two")
	goes("one", "other@else", "--token", "other", "-n", "else")
	goes("two", "from-env@", "--server", two)
	must("ctx", "select", "two")
	goes("two", "from-env@")
	t.Setenv("INSTAR_CONTEXT", "one")
	goes("one", "t1@shop")
	t.Setenv("INSTAR_SERVER", two)
	goes("two", "from-env@")
	goes("one", "t1@shop", "--context", "one")

	out := must("ctx", "ls")
	require.Contains(t, out, "*  two")
	require.NotContains(t, must("ctx", "ls", "-o", "json"), "t1", "tokens are not shown")
	require.Equal(t, "bare\none\ntwo\n", must("ctx", "ls", "-o", "name"))
	info, err := os.Stat(filepath.Join(dir, "instar", "contexts.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	fails(command.ExitUsage, "leave one of", "service", "ls", "--context", "one", "--server", two)
	fails(command.ExitUsage, `there is no context "three"; there are: bare, one, two`, "service", "ls", "--context", "three")
	fails(command.ExitUsage, "--server is missing", "ctx", "add", "x")
	fails(command.ExitUsage, "is no name of a context", "ctx", "add", "../x", "--server", one)
	fails(command.ExitUsage, "no http or https URL", "ctx", "add", "x", "--server", "ftp://x")
	must("ctx", "rm", "two")
	fails(command.ExitUsage, "there is no context", "ctx", "use", "two")
	require.NotContains(t, must("ctx", "ls"), "*")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "instar", "contexts.json"), []byte("{"), 0o600))
	fails(command.ExitGeneric, "cannot read the contexts in "+dir, "ctx", "ls")
}

func TestOperationsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	waits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/v1/operations/")
		if r.Header.Get("Prefer") != "" && name == "service.default.web.slow" {
			waits++
		}
		switch {
		case name == "batch.default.b/cancel" && r.Method == http.MethodPost:
			answer(w, 200, `{"name":"batch.default.b","kind":"batch","done":false,"metadata":{"step":"cancelling","progress":{"matched":3,"applied":2,"refused":1}}}`)
		case name == "batch.default.mixed":
			answer(w, 200, `{"name":"batch.default.mixed","kind":"batch","done":true,"metadata":{"step":"done","progress":{"matched":3,"applied":2,"refused":1,"failures":[{"key":"default.web","code":"guard-rejected","detail":"it is protected"}]}}}`)
		case name == "service.default.web.ok", name == "service.default.web.slow" && waits > 1:
			answer(w, 200, `{"name":"`+name+`","kind":"command","done":true,"metadata":{"step":"READY"},"response":{"outcome":"applied","state":"READY","version":4}}`)
		case name == "service.default.web.bad":
			answer(w, 200, `{"name":"`+name+`","kind":"command","done":true,"metadata":{"step":"FAILED"},"error":{"code":"RevisionFailed","message":"it ended"}}`)
		case strings.HasPrefix(name, "service.default.web."):
			answer(w, 200, `{"name":"`+name+`","kind":"command","done":false,"metadata":{"step":"UPDATING"}}`)
		default:
			answer(w, 404, problemJSON("not-found", 404, "there is no such operation", ""))
		}
	}))
	t.Cleanup(server.Close)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"op get service.default.web.ok":                    {0, "service.default.web.ok: done, READY, applied, version 4"},
		"op get /v1/operations/service.default.web.bad":    {0, "service.default.web.bad: done, FAILED, RevisionFailed: it ended"},
		"op get service.default.web.never -o name":         {0, "service.default.web.never"},
		"op wait service.default.web.slow":                 {0, "done, READY"},
		"op wait service.default.web.bad":                  {command.ExitFailed, "ended: RevisionFailed"},
		"op wait service.default.web.never --timeout 50ms": {command.ExitTimeout, "is still UPDATING after 50ms"},
		"op cancel batch.default.b":                        {0, "batch.default.b: under way, cancelling, 3 matched: 2 applied, 0 unchanged, 0 stored, 1 refused, 0 failed"},
		"op wait batch.default.mixed":                      {command.ExitConflict, "0 failed\n  default.web: guard-rejected: it is protected\ninstar: batch.default.mixed: 1 of 3 commands were refused or failed\n"},
		"op get batch.default.mixed":                       {0, "  default.web: guard-rejected: it is protected\n"},
		"op get service.default.none.x -o json":            {command.ExitNotFound, "there is no such operation"},
	} {
		code, out, errs := exitOf1(append(strings.Fields(args), "--server", server.URL)...)
		require.Equal(t, want.code, code, "%s: %s", args, errs)
		require.Contains(t, out+errs, want.says, args)
	}
}
