package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/audits"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/streams/audit"
)

// log is a server with the chain of one class.
type log struct {
	lines  []string
	began  time.Time
	fails  bool // behind the first page
	silent bool // of where chains end, as to a token of one namespace
	kept   int  // seconds; 0 says nothing of it
}

// write writes the chain anew, with so many records of somebody.
func (l *log) write(t *testing.T, n int, who string) {
	t.Helper()
	l.lines = nil
	head := audit.Head{}
	for i := range n {
		line, next, err := head.Seal(audit.Record{
			Class: "state", EventID: fmt.Sprint("e", i+1), EventType: "provisioning.db.ready", Timestamp: l.began, Actor: audit.RecordActor{Type: audit.User, ID: who},
			Target: audit.RecordTarget{TenantID: "acme", SessionID: "default.acme.move"}, Change: &audit.RecordChange{From: "switching", To: "ready"}, Result: audit.RecordResult{Success: true},
		}, l.began.Add(time.Duration(i)*time.Second))
		require.NoError(t, err)
		l.lines, head = append(l.lines, string(line)), next
	}
}

func (l *log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after := 0
	_, _ = fmt.Sscanf(r.URL.Query().Get("after"), "state-%d", &after)
	if l.fails && after > 1 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	next := ""
	lines := l.lines[min(after, len(l.lines)):]
	if len(lines) > 2 { // short pages
		lines, next = lines[:2], fmt.Sprintf("state-%d", after+2)
	}
	raws := []json.RawMessage{}
	for _, line := range lines {
		raws = append(raws, json.RawMessage(line))
	}
	answer := map[string]any{"nextCursor": next, "items": raws}
	if !l.silent {
		answer["ends"] = map[string]any{"state": map[string]any{"sequence": len(l.lines), "at": time.Now(), "keptSeconds": l.kept}}
	}
	_ = json.NewEncoder(w).Encode(answer) // what is lost, the test misses
}

func TestTheAuditIsExportedAndVerified(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-time.Minute).UTC()}
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	run := func(args ...string) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		code = execute(append(append([]string{"audit"}, args...), "--server", srv.URL), strings.NewReader(""), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	l.write(t, 5, "alice")
	code, out, errs := run("--tenant", "acme")
	require.Zero(t, code, errs)
	require.Contains(t, out, "switching → ready")
	require.Equal(t, 5, strings.Count(out, "user alice"))

	code, _, errs = run("export", file)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "5 records were appended")
	l.write(t, 7, "alice")
	code, _, errs = run("verify", file)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "records 1 to 7 are as they were written")
	require.Contains(t, errs, "they are kept for 1095 days")
	code, _, errs = run("export", file)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "2 records were appended")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Join(l.lines, "\n")+"\n", string(text), "as they were written")
	code, _, errs = run("export", file)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "0 records were appended")

	l.lines[3] = strings.Replace(l.lines[3], "alice", "mallory", 1)
	code, _, errs = run("verify")
	require.Equal(t, 7, code)
	require.Contains(t, errs, "class state are not as they were written: record 4: its hash is another one: it was changed")
	code, _, errs = run("verify", file)
	require.Equal(t, 7, code, "also where the file has it as it was")
	require.Contains(t, errs, "record 4: its hash is another one: it was changed")
	l.write(t, 7, "mallory") // from its beginning
	code, _, errs = run("verify")
	require.Zero(t, code, errs)
	code, _, errs = run("verify", file)
	require.Equal(t, 7, code)
	require.Contains(t, errs, "record 1: the server has another one than the file")
	code, _, errs = run("export", file)
	require.Equal(t, 7, code)
	require.Contains(t, errs, "record 7: the server has another one than the file")
	l.write(t, 6, "alice")
	code, _, errs = run("verify", file)
	require.Equal(t, 7, code)
	require.Contains(t, errs, "record 7: the server has never had it")

	l.write(t, 7, "alice")
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte(`"e2"`), []byte(`"e9"`), 1), 0o600))
	for _, what := range []string{"export", "verify"} {
		code, _, errs = run(what, file)
		require.Equal(t, 7, code)
		require.Contains(t, errs, "line 2")
	}
	require.NoError(t, os.WriteFile(file, text[:len(text)-10], 0o600))
	code, _, errs = run("export", file)
	require.NotZero(t, code)
	require.Contains(t, errs, "line 7 is not complete")
}

// How long records are kept is what the server says, and nothing is configured here.
func TestAChainIsVerifiedByTheLifeThatTheServerTells(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-72 * time.Hour).UTC()}
	l.write(t, 7, "alice")
	l.lines = l.lines[2:]
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	for kept, want := range map[int]string{0: "record 2: it was removed before its time", 48 * 3600: "records 3 to 7 are as they were written"} {
		l.kept = kept
		var out, errs bytes.Buffer
		code := execute([]string{"audit", "verify", "--server", srv.URL}, strings.NewReader(""), &out, &errs)
		require.Equal(t, kept == 0, code == 7, errs.String())
		require.Contains(t, errs.String(), want)
	}
}

// A file of an export from which records are missing that had their age before they were exported is checked on both sides of them, and that is said.
func TestAnExportWithAGapIsVerified(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-72 * time.Hour).UTC(), kept: 48 * 3600}
	l.write(t, 7, "alice")
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(l.lines[0]+"\n"+l.lines[4]+"\n"), 0o600))
	l.lines = l.lines[2:]
	var out, errs bytes.Buffer
	require.Zero(t, execute([]string{"audit", "verify", file, "--server", srv.URL}, strings.NewReader(""), &out, &errs), errs.String())
	require.Contains(t, errs.String(), "3 records before line 2 of "+file+" had their age before they were exported")
	require.Contains(t, errs.String(), "records 5 to 7 are as they were written")
}

// What was verified before a page fails is in the file, and the next export goes on behind it.
func TestAnExportKeepsWhatItHas(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-time.Minute).UTC(), fails: true}
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "audit.jsonl")
	run := func(args ...string) (code int, errs string) {
		var stdout, stderr bytes.Buffer
		code = execute(append(append([]string{"audit"}, args...), "--server", srv.URL), strings.NewReader(""), &stdout, &stderr)
		return code, stderr.String()
	}
	l.write(t, 5, "alice")
	code, errs := run("export", file)
	require.NotZero(t, code)
	require.Contains(t, errs, "2 records were appended")
	l.fails = false
	code, errs = run("export", file)
	require.Zero(t, code, errs)
	require.Contains(t, errs, "3 records were appended")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Join(l.lines, "\n")+"\n", string(text))

	l.silent = true
	file = filepath.Join(t.TempDir(), "none.jsonl")
	for _, what := range []string{"export", "verify"} {
		code, errs = run(what, file)
		require.Equal(t, command.ExitAuth, code)
		require.Contains(t, errs, "the token is of one namespace")
		require.NoFileExists(t, file)
	}
}

// What is no export is not one that somebody has changed.
func TestWhatIsNoExportIsNamedSo(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-time.Minute).UTC()}
	l.write(t, 2, "alice")
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	run := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		require.Equal(t, command.ExitUsage, execute(append(append([]string{"audit"}, args...), "--server", srv.URL), strings.NewReader(""), &stdout, &stderr), stderr.String())
		return stderr.String()
	}
	dir := t.TempDir()
	for text, name := range map[string]string{"first line\nsecond\n": "text", "{}": "object", `{"kind":"x"}` + "\n": "other"} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, what := range []string{"verify", "export"} {
			require.Contains(t, run(what, file), "is no export of the audit")
		}
	}
	require.Contains(t, run("export", dir), "is a directory")
	require.Contains(t, run("verify", "-n", "default"), "all namespaces")
}

// Two that append the same records leave a file that no later one takes.
func TestOneExportWritesAFileAtATime(t *testing.T) {
	t.Parallel()
	l := &log{began: time.Now().Add(-time.Minute).UTC()}
	l.write(t, 3, "alice")
	srv := httptest.NewServer(l)
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	run := func() (int, string) {
		var stdout, stderr bytes.Buffer
		code := execute([]string{"audit", "export", file, "--server", srv.URL}, strings.NewReader(""), &stdout, &stderr)
		return code, stderr.String()
	}
	code, said := run()
	require.NotZero(t, code)
	require.Contains(t, said, "another export writes "+file)
	require.NoError(t, f.Close())
	code, said = run()
	require.Zero(t, code, said)
}

// The types that the command names are those that machines make.
func TestTheTypesOfResourcesAreNamed(t *testing.T) {
	t.Parallel()
	kinds := []string{
		database.KindDatabase, database.KindReplication, database.KindFence, database.KindRuntime,
		platform.KindSlug, platform.KindInstance, platform.KindStorage, platform.KindApp, platform.KindRoute, platform.KindDomain, platform.KindCert,
	}
	require.Equal(t, strings.Join(kinds, ", "), audits.Types)
}
