package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
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
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "NODE")
	require.Regexp(t, `one +live +2 +- `, out)
	require.Regexp(t, `two +live \(wanted: cordoned\) +0 +gateway,views`, out)
	_, out, _ = run("ls", "-o", "name")
	require.Equal(t, "one\ntwo\n", out)
	_, out, _ = run("show", "one")
	require.Contains(t, out, "partitions:")

	code, out, _ = run("drain", "one")
	require.Equal(t, exitOK, code)
	require.Regexp(t, `one +draining +0 `, out)
	code, _, _ = run("uncordon", "one")
	require.Equal(t, exitOK, code)

	for args, want := range map[string]int{"drain ghost": exitNotFound, "show ghost": exitNotFound, "drain": exitUsage, "cordon NO!": exitUsage, "explode one": exitUsage} {
		code, _, _ := run(strings.Fields(args)...)
		require.Equal(t, want, code, args)
	}
}

func TestNodeNameAndNonce(t *testing.T) {
	// Not parallel: a process that another test forks holds the lock until it runs its program.
	dir := t.TempDir()
	first, err := claimData(dir, "node-1")
	require.NoError(t, err)
	require.Equal(t, "node-1", first.node)
	require.Empty(t, first.before)
	require.NotEmpty(t, first.nonce)
	_, err = claimData(dir, "node-1")
	require.ErrorContains(t, err, "another instar uses the data directory")
	require.NoError(t, first.close())

	second, err := claimData(dir, "")
	require.NoError(t, err)
	require.Equal(t, "node-1", second.node)
	require.Equal(t, []string{first.nonce}, second.before, "it knows who was before it")
	require.NoError(t, second.close())
	next, err := claimData(dir, "")
	require.NoError(t, err)
	require.Equal(t, []string{second.nonce, first.nonce}, next.before, "the second may have been killed before it entered")
	require.NoError(t, next.close())
	for range 2 * remembered {
		more, err := claimData(dir, "")
		require.NoError(t, err)
		require.LessOrEqual(t, len(more.before), remembered)
		require.NoError(t, more.close())
	}
	_, err = claimData(dir, "node-2")
	require.ErrorContains(t, err, `is that of node "node-1", and --node says "node-2"`)

	copied := t.TempDir()
	for _, name := range []string{"node", "nonce"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(copied, name), raw, 0o600))
	}
	third, err := claimData(copied, "")
	require.NoError(t, err)
	require.Equal(t, "node-1", third.node)
	require.Empty(t, third.before, "in a copy the process before it may live")
	require.NoError(t, third.close())
}

func TestClusterPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := Defaults(ModeServe)
	c.Cluster = Cluster{Name: "blue", Password: "secret1", Routes: "nats://u:secret2@a:1, nats://b:1"}
	text := c.String()
	require.NotContains(t, text, "secret")
	require.Contains(t, text, "nats://b:1")
}

func TestTheTableOfAClusterFitsTheTerminal(t *testing.T) {
	t.Parallel()
	require.Equal(t, "NODE\nnode\n", cut("NODE    IS\nnode-1  ready\n", 4))
	require.Equal(t, "NODE    IS\nnode-1\n", cut("NODE    IS\nnode-1\n", 0))
	require.Equal(t, "ab\n", cut("ab\n", 2))
}
