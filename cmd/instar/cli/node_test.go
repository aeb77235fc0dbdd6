package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

// nodesAPI is the part of the API that is about nodes; one that is drained has given everything away at the second look.
func nodesAPI(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	state, partitions := "live", "[3,4]"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"items":[{"name":"one","state":%q,"want":%q,"started":"2026-01-02T03:04:05Z","version":"1.2","url":"http://one","partitions":%s,"roles":[]},
			{"name":"two","state":"live","want":"cordoned","started":"2026-01-02T03:04:05Z","partitions":[],"roles":["gateway","views"]}],"partitions":32}`, state, state, partitions)
		if state == "draining" {
			partitions = "[]"
		}
	})
	mux.HandleFunc("POST /v1/nodes/one/{verb}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		state = map[string]string{"drain": "draining", "cordon": "cordoned", "uncordon": "live"}[r.PathValue("verb")]
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"items":[]}`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"not-found","status":404,"detail":"there is no such node"}`)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestNodeCommands(t *testing.T) {
	t.Parallel()
	server := nodesAPI(t)
	run := func(args ...string) (int, string, string) {
		var out, err bytes.Buffer
		code := execute(append(append([]string{"node"}, args...), "--server", server.URL), strings.NewReader(""), &out, &err)
		return code, out.String(), err.String()
	}
	code, out, _ := run("ls")
	require.Equal(t, command.ExitOK, code)
	require.Contains(t, out, "NODE")
	require.Regexp(t, `one +live +2 +- `, out)
	require.Regexp(t, `two +live \(wanted: cordoned\) +0 +gateway,views`, out)
	_, out, _ = run("ls", "-o", "name")
	require.Equal(t, "one\ntwo\n", out)
	_, out, _ = run("show", "one")
	require.Contains(t, out, "partitions:")

	code, out, _ = run("drain", "one")
	require.Equal(t, command.ExitOK, code)
	require.Regexp(t, `one +draining +0 `, out)
	code, _, _ = run("uncordon", "one")
	require.Equal(t, command.ExitOK, code)

	for args, want := range map[string]int{"drain ghost": command.ExitNotFound, "show ghost": command.ExitNotFound, "drain": command.ExitUsage, "cordon NO!": command.ExitUsage, "explode one": command.ExitUsage} {
		code, _, _ := run(strings.Fields(args)...)
		require.Equal(t, want, code, args)
	}
}

func TestTheTableOfAClusterFitsTheTerminal(t *testing.T) {
	t.Parallel()
	require.Equal(t, "NODE\nnode\n", cut("NODE    IS\nnode-1  ready\n", 4))
	require.Equal(t, "NODE    IS\nnode-1\n", cut("NODE    IS\nnode-1\n", 0))
	require.Equal(t, "ab\n", cut("ab\n", 2))
}
