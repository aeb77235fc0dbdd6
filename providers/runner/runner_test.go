package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/program"
)

// store keeps documents and log lines in memory.
type store struct {
	mu    sync.Mutex
	files map[string]string
	lines []string
	fail  error
}

func (s *store) Put(_ context.Context, name, mediaType string, _ int64, in io.Reader) (task.Document, error) {
	body, err := io.ReadAll(in)
	if err != nil {
		return task.Document{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return task.Document{}, s.fail
	}
	s.files[name] = string(body)
	return task.Document{Name: name, MediaType: mediaType, Size: int64(len(body))}, nil
}

func (s *store) Erase(_ context.Context, prefix string, below uint64) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.files {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, prefix), "/")
		if of, err := strconv.ParseUint(number, 10, 64); err == nil && strings.HasPrefix(name, prefix) && of < below {
			delete(s.files, name)
			n++
		}
	}
	return n, s.fail
}

func (s *store) Log(t *machines.Task, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, t.ID+": "+line)
}

func (s *store) Progress(*machines.Task, float64, string) {}

func (s *store) log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func setup(t *testing.T) (*Runner, *store, string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	origin := filepath.Join(t.TempDir(), "shop")
	script := `set -e; mkdir "$0"; cd "$0"; git init -q -b main; printf 'package main\n' > main.go; printf 'module example.com/shop\n' > go.mod
git add .; git -c user.name=a -c user.email=a@example.com commit -qm one`
	out, err := exec.Command("/bin/sh", "-c", script, origin).CombinedOutput()
	require.NoError(t, err, string(out))
	clones, err := clone.Open(clone.Options{Dir: t.TempDir(), Local: []string{origin}})
	require.NoError(t, err)
	s := &store{files: map[string]string{}}
	return &Runner{
		Worker: "node-1", Dir: t.TempDir(), Clones: clones, Documents: s, Reports: s,
		Programs: &program.Runner{Grace: 100 * time.Millisecond, Programs: map[string]program.Program{
			"report": {Path: "/bin/sh", Args: []string{"-c", `ls "$INSTAR_CHECKOUT"; echo "TOKEN=gh` + `p_abcdefghijklmnopqrstuvwxyz0123456789"; mkdir "$INSTAR_DOCUMENTS/a"; echo hi > "$INSTAR_DOCUMENTS/a/b.md"; ln -s /etc/passwd "$INSTAR_DOCUMENTS/c"; printf end`}},
			"wait":   {Path: "/bin/sh", Args: []string{"-c", "echo begun; sleep 600"}},
			"deep":   {Path: "/bin/sh", Args: []string{"-c", `cd "$INSTAR_DOCUMENTS"; d=$(printf %0200d 0); for i in 1 2 3 4 5; do mkdir "$d"; cd "$d"; done; echo > x`}},
			"many":   {Path: "/bin/sh", Args: []string{"-c", `for i in $(seq 70); do echo > "$INSTAR_DOCUMENTS/$i"; done`}},
		}},
	}, s, origin
}

func job(typ, url, params string) machines.Task {
	data, err := json.Marshal(task.Run{
		Type: typ, Repository: task.Repository{URL: url}, Params: json.RawMessage(params), Enqueue: 3, Attempt: 2, Attempts: 3,
		Timeout: time.Minute, Documents: "default/shop/" + typ + "/3/2/",
	})
	if err != nil {
		panic(err)
	}
	return machines.Task{Machine: "task", Namespace: "default", Parent: "shop", ID: typ, Effect: "run", Attempt: typ + "-1", Data: data}
}

func TestEveryTypeThatClones(t *testing.T) {
	t.Parallel()
	r, s, origin := setup(t)
	for _, typ := range Types() {
		if typ == TypeExec || typ == TypeHTTP {
			continue
		}
		result := r.Perform(t.Context(), job(typ, origin, `{"depth": 5}`))
		require.Nil(t, result.Failure, typ)
		done := result.Data.(*task.Result)
		require.Equal(t, "node-1", done.Worker)
		require.NotEmpty(t, done.Summary)
		for _, d := range done.Documents {
			require.NotEmpty(t, s.files[d.Name], d.Name)
		}
		require.Equal(t, typ == TypeClone, len(done.Documents) == 0, typ)
		require.Contains(t, s.log(), typ+": done in")
	}
	require.Contains(t, s.files["default/shop/structure/3/2/structure.md"], "# Structure of default/shop")
	erase, err := json.Marshal(task.Erase{Documents: "default/shop/lines/", Below: 4})
	require.NoError(t, err)
	before := len(s.files)
	result := r.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "shop", ID: "lines", Effect: task.EffectErase, Data: erase})
	require.Equal(t, task.Erased{Documents: 2}, result.Data)
	require.Len(t, s.files, before-2)
	result = r.Perform(t.Context(), machines.Task{Namespace: "default", Parent: "other", ID: "lines", Effect: task.EffectErase, Data: erase})
	require.Equal(t, "invalid", result.Failure.Code, "of another task")
}

// A program works on what the last clone of the repository has brought, wherever that ran.
func TestExecSeesTheLastClone(t *testing.T) {
	t.Parallel()
	r, s, origin := setup(t)
	of := func(n uint64) machines.Task {
		j := job(TypeExec, origin, `{"program":"report"}`)
		var run task.Run
		require.NoError(t, json.Unmarshal(j.Data, &run))
		run.Repository.Clone = n
		data, err := json.Marshal(run)
		require.NoError(t, err)
		j.Data = data
		return j
	}
	require.Nil(t, r.Perform(t.Context(), of(1)).Failure)
	out, err := exec.Command("/bin/sh", "-c", `cd "$0"; echo > pushed.txt; git add .; git -c user.name=a -c user.email=a@example.com commit -qm two`, origin).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Nil(t, r.Perform(t.Context(), of(1)).Failure)
	require.NotContains(t, s.log(), "pushed.txt", "no clone was asked for since")
	require.Nil(t, r.Perform(t.Context(), of(2)).Failure)
	require.Contains(t, s.log(), "pushed.txt", "another node has cloned it")
}

func TestExec(t *testing.T) {
	t.Parallel()
	r, s, origin := setup(t)
	result := r.Perform(t.Context(), job(TypeExec, origin, `{"program":"report"}`))
	require.Nil(t, result.Failure)
	require.Equal(t, map[string]string{"default/shop/exec/3/2/a/b.md": "hi\n"}, s.files, "and no link")
	require.Contains(t, s.log(), "main.go")
	require.Contains(t, s.log(), "exec: end")
	require.NotContains(t, s.log(), "abcdefghij", "credentials are masked")
	left, err := os.ReadDir(r.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
	result = r.Perform(t.Context(), job(TypeExec, "", `{"program":"many"}`))
	require.ErrorContains(t, result.Failure, "more than 64 documents")
	result = r.Perform(t.Context(), job(TypeExec, "", `{"program":"deep"}`))
	require.ErrorContains(t, result.Failure, "more than 1024 bytes")
	require.Equal(t, "limit-exceeded", result.Failure.Code)
	require.False(t, result.Failure.Retryable)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan machines.Result, 1)
	go func() { done <- r.Perform(ctx, job(TypeExec, "", `{"program":"wait"}`)) }()
	require.Eventually(t, func() bool { return strings.Contains(s.log(), "begun") }, 10*time.Second, 5*time.Millisecond)
	cancel()
	require.NotNil(t, (<-done).Failure)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	r, s, origin := setup(t)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Retry-After", "3")
		w.WriteHeader(map[string]int{"/busy": 503, "/no": 404}[q.URL.Path])
	}))
	t.Cleanup(at.Close)
	slow := job(TypeExec, "", `{"program":"wait"}`)
	slow.Data = []byte(strings.Replace(string(slow.Data), `"timeout":60000000000`, `"timeout":100000000`, 1))
	narrow := *r
	narrow.Apart.Memory, narrow.Limits.FileBytes = 1<<20, 64<<20 // what is read of the file is more than the Go runtime has mapped beforehand
	out, err := exec.Command("/bin/sh", "-c", `cd "$0"; yes x | head -c 33554432 > big.go; git add .; git -c user.name=a -c user.email=a@example.com commit -qm two`, origin).CombinedOutput()
	require.NoError(t, err, string(out))
	result := narrow.Perform(t.Context(), job("lines", origin, ""))
	require.NotNil(t, result.Failure, "an analysis that needs too much")
	require.Equal(t, "limit-exceeded", result.Failure.Code, "an analysis that needs too much")
	require.Equal(t, "analyze needs more than the 1 MiB of memory that it may have", result.Failure.Message)
	for name, c := range map[string]struct {
		task      machines.Task
		code      string
		retryable bool
		says      string
	}{
		"unknown type":      {job("bake", origin, ""), "invalid", false, "no task of type"},
		"no url":            {job(TypeClone, "", ""), "invalid", false, "has no url"},
		"unknown parameter": {job(TypeClone, origin, `{"deep":1}`), "invalid", false, "deep"},
		"elsewhere":         {job(TypeClone, "/etc", ""), "invalid", false, "allows to clone from"},
		"no such program":   {job(TypeExec, "", `{"program":"sh"}`), "invalid", false, "not in the configuration"},
		"http busy":         {job(TypeHTTP, "", `{"url":"`+at.URL+`/busy"}`), "unavailable", true, "503"},
		"http missing":      {job(TypeHTTP, "", `{"url":"`+at.URL+`/no"}`), "invalid", false, "404"},
		"too slow":          {slow, "timeout", true, "within 100ms"},
		"unreadable":        {machines.Task{Effect: "run", Data: []byte("[")}, "invalid", false, "cannot be read"},
	} {
		result := r.Perform(t.Context(), c.task)
		require.NotNil(t, result.Failure, name)
		require.Equal(t, c.code, result.Failure.Code, name)
		require.Equal(t, c.retryable, result.Failure.Retryable, name)
		require.Contains(t, result.Failure.Message, c.says, name)
	}
	busy := r.Perform(t.Context(), job(TypeHTTP, "", `{"url":"`+at.URL+`/busy"}`))
	require.Equal(t, 3*time.Second, busy.Failure.RetryAfter)
	s.fail = fmt.Errorf("full")
	result = r.Perform(t.Context(), job("lines", origin, ""))
	require.True(t, result.Failure.Retryable)
	require.Empty(t, slices.Collect(maps.Keys(s.files)))
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	r, s, _ := setup(t)
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = fmt.Fprint(w, q.Header.Get("Idempotency-Key"))
	}))
	t.Cleanup(at.Close)
	result := r.Perform(t.Context(), job(TypeHTTP, "", `{"url":"`+at.URL+`"}`))
	require.Nil(t, result.Failure)
	require.Equal(t, "default.shop.http.3", s.files["default/shop/http/3/2/response"], "the same for all attempts of an enqueuing")
}

func TestLines(t *testing.T) {
	t.Parallel()
	var got []string
	l := &lines{to: func(s string) { got = append(got, s) }}
	for _, p := range []string{"a", "b\nc\x1b[2J\n\n", strings.Repeat("x", maxLine+1), "\nend"} {
		_, err := l.Write([]byte(p))
		require.NoError(t, err)
	}
	l.flush()
	l.flush()
	require.Equal(t, []string{"ab", "c[2J", "", strings.Repeat("x", maxLine), "x", "end"}, got)
}

// A credential is found wherever a line is cut, and none is told that a cut has made unlike one.
func TestACredentialInALongLineIsMasked(t *testing.T) {
	t.Parallel()
	secret := "gh" + "p_" + strings.Repeat("a1", 18)
	for at := maxLine - 60; at < maxLine+20; at++ {
		var got []string
		l := &lines{to: func(s string) { got = append(got, s) }}
		line := strings.Repeat("é ", at/3) + strings.Repeat(" ", at%3) + secret + strings.Repeat(" x", maxLine) + "\nnext\n"
		for _, p := range []string{line[:at+10], line[at+10:]} {
			_, err := l.Write([]byte(p))
			require.NoError(t, err)
		}
		require.Equal(t, strings.ReplaceAll(line, secret, "gh"+"p_… (40 characters)"), strings.Join(got[:len(got)-1], "")+"\nnext\n")
	}
	for name, cut := range map[string]func(*lines){
		"a line that is too long": func(l *lines) { _, _ = l.Write([]byte(strings.Repeat("x", maxHeld))) },
		"output that is too much": func(l *lines) { l.leftOut(maxHeld) },
	} {
		var got []string
		l := &lines{to: func(s string) { got = append(got, s) }}
		_, err := l.Write([]byte(strings.Repeat("x ", (maxHeld-30)/2) + secret[:30]))
		require.NoError(t, err)
		cut(l)
		l.flush()
		text := strings.Join(got, "")
		require.NotContains(t, text, "gh"+"p_", name)
		require.Contains(t, text, "x … ", name)
		require.Contains(t, text, " more bytes of output were left out", name)
	}
}

// A file that names more dependencies than there is memory for is told to be missing, and fails no task.
func TestDependenciesFitIntoTheMemory(t *testing.T) {
	t.Parallel()
	r, _, origin := setup(t)
	narrow := *r
	narrow.Apart.Memory = 96 << 20
	var lock strings.Builder
	lock.WriteString(`{"lockfileVersion":3,"packages":{"":{}`)
	for i := 0; lock.Len() < 4<<20; i++ {
		fmt.Fprintf(&lock, `,"node_modules/p%d":{"version":"1"}`, i)
	}
	lock.WriteString("}}")
	require.NoError(t, os.WriteFile(filepath.Join(origin, "package-lock.json"), []byte(lock.String()), 0o600))
	out, err := exec.Command("/bin/sh", "-c", `cd "$0"; git add .; git -c user.name=a -c user.email=a@example.com commit -qm two`, origin).CombinedOutput()
	require.NoError(t, err, string(out))
	result := narrow.Perform(t.Context(), job("dependencies", origin, ""))
	require.Nil(t, result.Failure, "%+v", result.Failure)
	require.Contains(t, result.Data.(*task.Result).Summary, "Incomplete: 1 file that names dependencies could not be read.")
}
