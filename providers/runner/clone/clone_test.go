package clone

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/providers/runner/analyze"
)

// origin is a repository with two commits on main, a branch and a tag.
func origin(t *testing.T) (dir string, run func(args ...string) string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not here")
	}
	dir = filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	run = func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	run("init", "-q", "-b", "main")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("a.txt", "one\n")
	run("add", ".")
	run("commit", "-qm", "one")
	run("tag", "v1")
	run("branch", "side")
	write("a.txt", "one\ntwo\n")
	write("b c.txt", "x\n")
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	run("add", ".")
	run("commit", "-qm", "two")
	return dir, run
}

func cloner(t *testing.T, opts Options) *Cloner {
	t.Helper()
	opts.Dir = t.TempDir()
	c, err := Open(opts)
	require.NoError(t, err)
	return c
}

// both runs a test with git, and without it.
func both(t *testing.T, test func(t *testing.T, git string)) {
	t.Run("git", func(t *testing.T) { t.Parallel(); test(t, "") })
	t.Run("go-git", func(t *testing.T) { t.Parallel(); test(t, "-") })
}

func TestFetch(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		dir, run := origin(t)
		c := cloner(t, Options{Local: []string{filepath.Dir(dir)}, Git: git})
		for ref, want := range map[string]string{"": "main", "main": "main", "side": "side", "v1": "v1", run("rev-parse", "side"): "side"} {
			got, err := c.Fetch(t.Context(), "default/shop", "run-1", Source{URL: dir, Ref: ref}, nil)
			require.NoError(t, err, ref)
			require.Equal(t, run("rev-parse", want), got.Commit, ref)
			text, err := os.ReadFile(filepath.Join(got.Dir, "a.txt"))
			require.NoError(t, err)
			require.Equal(t, map[bool]string{true: "one\ntwo\n", false: "one\n"}[want == "main"], string(text))
			require.Positive(t, got.Bytes)
			got.Release()
			got.Release()
		}
		require.Empty(t, c.used)
		for _, ref := range []string{"nothing", strings.Repeat("0", 40)} {
			_, err := c.Fetch(t.Context(), "default/shop", "run-1", Source{URL: "file://" + dir, Ref: ref}, nil)
			require.True(t, providers.IsInvalid(err), "%s: %v", ref, err)
		}
		left, err := filepath.Glob(filepath.Join(c.opts.Dir, "*", "*", partial+"*"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func historyOf(t *testing.T, got *Checkout, most int) (list []analyze.Commit, err error) {
	t.Helper()
	file, err := got.Log(t.Context(), t.TempDir(), most)
	if err == nil {
		_, err = History(got.Dir, file)(t.Context(), most, func(c analyze.Commit) { list = append(list, c) })
	}
	return list, err
}

func TestHistory(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		dir, run := origin(t)
		c := cloner(t, Options{Local: []string{dir}, Git: git})
		got, err := c.Fetch(t.Context(), "default/shop", "run-1", Source{URL: dir, Depth: -1}, nil)
		require.NoError(t, err)
		defer got.Release()
		list, err := historyOf(t, got, 10)
		require.NoError(t, err)
		require.Len(t, list, 2)
		require.Equal(t, run("rev-parse", "HEAD"), list[0].Hash)
		require.Equal(t, "a@example.com", list[0].Author)
		require.WithinDuration(t, time.Now(), list[0].When, time.Hour)
		paths := map[string][2]int{}
		for _, ch := range list[0].Changes {
			paths[ch.Path] = [2]int{ch.Added, ch.Deleted}
		}
		require.Equal(t, [2]int{1, 0}, paths["a.txt"])
		require.Equal(t, [2]int{1, 0}, paths["b c.txt"])
		list, err = historyOf(t, got, 1)
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
	t.Run("shallow", func(t *testing.T) {
		t.Parallel()
		dir, _ := origin(t)
		c := cloner(t, Options{Local: []string{dir}})
		got, err := c.Fetch(t.Context(), "default/shop", "run-1", Source{URL: dir, Depth: 1}, nil)
		require.NoError(t, err)
		defer got.Release()
		list, err := historyOf(t, got, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Empty(t, list[0].Changes)
	})
}

// A fetch that is repeated, or ends after one that began later, changes nothing; what is used stays.
func TestCheckoutsAreKept(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	c := cloner(t, Options{Local: []string{dir}, Keep: time.Nanosecond})
	src := Source{URL: dir}
	first, err := c.Use(t.Context(), "default/shop", "a", src, nil)
	require.NoError(t, err)
	require.True(t, first.Fetched)
	again, err := c.Fetch(t.Context(), "default/shop", "a", src, nil)
	require.NoError(t, err)
	require.False(t, again.Fetched)
	require.Equal(t, first.Dir, again.Dir)
	again.Release()
	run("commit", "-qm", "three", "--allow-empty")
	used, err := c.Use(t.Context(), "default/shop", "b", src, nil)
	require.NoError(t, err)
	require.Equal(t, first.Commit, used.Commit, "what is current is used until it is fetched anew")
	used.Release()
	third, err := c.Fetch(t.Context(), "default/shop", "b", src, nil)
	require.NoError(t, err)
	require.Equal(t, run("rev-parse", "HEAD"), third.Commit)
	require.DirExists(t, first.Dir, "it is in use")
	require.NoError(t, makeCurrent(filepath.Dir(third.Dir), record{Commit: first.Commit, Source: src, Began: time.Now().Add(-time.Hour)}))
	r, err := current(filepath.Dir(third.Dir))
	require.NoError(t, err)
	require.Equal(t, third.Commit, r.Commit, "an older fetch does not come back")
	first.Release()
	run("commit", "-qm", "four", "--allow-empty")
	fourth, err := c.Fetch(t.Context(), "default/shop", "c", src, nil)
	require.NoError(t, err)
	require.NoDirExists(t, first.Dir)
	require.NoError(t, c.Remove("default/shop"))
	require.DirExists(t, fourth.Dir)
	third.Release()
	fourth.Release()
	require.NoError(t, c.Remove("default/shop"))
	require.NoDirExists(t, fourth.Dir)

	// What a killed process left is gone with the next start.
	left := filepath.Join(c.opts.Dir, "default", "shop", partial+"x")
	require.NoError(t, os.MkdirAll(left, 0o700))
	_, err = Open(c.opts)
	require.NoError(t, err)
	require.NoDirExists(t, left)
}

// What another node has fetched again is fetched here, too, once for all that use it; what is as new serves without.
func TestAClonedAgainElsewhereIsUsed(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	one, other := cloner(t, Options{Local: []string{dir}}), cloner(t, Options{Local: []string{dir}})
	src := func(clone uint64) Source { return Source{URL: dir, Clone: clone} }
	use := func(clone uint64) (commit string, fetched bool) {
		got, err := other.Use(t.Context(), "default/shop", "use", src(clone), nil)
		require.NoError(t, err)
		defer got.Release()
		return got.Commit, got.Fetched
	}
	first := run("rev-parse", "HEAD")
	commit, _ := use(7)
	require.Equal(t, first, commit)
	run("commit", "-qm", "three", "--allow-empty")
	second := run("rev-parse", "HEAD")
	got, err := one.Fetch(t.Context(), "default/shop", "again", src(9), nil)
	require.NoError(t, err)
	got.Release()

	commit, fetched := use(7)
	require.Equal(t, first, commit, "a use that began before goes on with what it had")
	require.False(t, fetched)
	commit, fetched = use(9)
	require.Equal(t, second, commit)
	require.True(t, fetched)
	for _, clone := range []uint64{9, 0} {
		commit, fetched = use(clone)
		require.Equal(t, second, commit)
		require.False(t, fetched)
	}
	// A store that was restored counts again from where it was: what another node has fetched since has a lower number than what is kept.
	run("commit", "-qm", "since the restore", "--allow-empty")
	since := run("rev-parse", "HEAD")
	for _, expected := range []bool{true, false} {
		commit, fetched = use(8)
		require.Equal(t, since, commit)
		require.Equal(t, expected, fetched)
	}

	run("commit", "-qm", "four", "--allow-empty")
	unlock, err := other.lock(t.Context(), "default/shop")
	require.NoError(t, err)
	checkouts := make(chan *Checkout, 3)
	for i := range 3 {
		go func() {
			got, err := other.Use(t.Context(), "default/shop", strconv.Itoa(i), src(12), nil)
			if err != nil {
				t.Error(err)
			}
			checkouts <- got
		}()
	}
	unlock()
	n := 0
	for range 3 {
		got := <-checkouts
		require.NotNil(t, got)
		require.Equal(t, run("rev-parse", "HEAD"), got.Commit)
		if got.Fetched {
			n++
		}
		got.Release()
	}
	require.Equal(t, 1, n)
}

// What is for one namespace is for no other.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	dir, _ := origin(t)
	asked := ""
	c := cloner(t, Options{Local: []string{dir}, LocalFor: []string{"shop"}, Credentials: func(namespace, host string) (Credential, bool) {
		asked = namespace + " " + host
		return Credential{}, false
	}})
	got, err := c.Fetch(t.Context(), "shop/a", "a", Source{URL: dir}, nil)
	require.NoError(t, err)
	got.Release()
	_, err = c.Use(t.Context(), "other/a", "a", Source{URL: dir}, nil)
	require.ErrorContains(t, err, "no repository below a directory that the configuration of this node allows")
	_, _ = c.Fetch(t.Context(), "other/a", "a", Source{URL: "https://127.0.0.1:1/x"}, nil)
	require.Equal(t, "other 127.0.0.1:1", asked)
}

// The group of the user of programs reads checkouts, and nobody else does.
func TestGroup(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root gives files to groups of others")
	}
	dir, _ := origin(t)
	c := cloner(t, Options{Local: []string{dir}, Group: 65534})
	got, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: dir}, nil)
	require.NoError(t, err)
	defer got.Release()
	for _, at := range []string{filepath.Join(c.opts.Dir, "default"), filepath.Dir(got.Dir), got.Dir, filepath.Join(got.Dir, "a.txt")} {
		info, err := os.Stat(at)
		require.NoError(t, err)
		require.EqualValues(t, 65534, info.Sys().(*syscall.Stat_t).Gid, at)
		require.NotZero(t, info.Mode()&0o040, at)
	}
	info, err := os.Stat(got.Dir)
	require.NoError(t, err)
	require.Zero(t, info.Mode()&0o027, "it does not write, and others do nothing")
}

// Who waits for the fetch of another one does so no longer than until it is canceled, and leaves nothing behind.
func TestACanceledFetchDoesNotWait(t *testing.T) {
	t.Parallel()
	dir, _ := origin(t)
	c := cloner(t, Options{Local: []string{dir}})
	unlock, err := c.lock(t.Context(), "default/shop")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := c.Fetch(ctx, "default/shop", "a", Source{URL: dir}, nil); done <- err }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	unlock()
	require.Empty(t, c.busy)
}

// Many at a time, as after a redelivery.
func TestFetchesTogether(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	c := cloner(t, Options{Local: []string{dir}})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			got, err := c.Fetch(t.Context(), "default/shop", "same", Source{URL: dir}, nil)
			if err != nil || got.Commit != run("rev-parse", "HEAD") {
				t.Errorf("%+v %v", got, err)
				return
			}
			got.Release()
		})
	}
	all.Wait()
}

func TestSources(t *testing.T) {
	t.Parallel()
	dir, _ := origin(t)
	outside := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, outside))
	c := cloner(t, Options{Local: []string{filepath.Dir(dir)}})
	for _, src := range []Source{
		{URL: "/etc"},
		{URL: filepath.Dir(dir) + "/../.."},
		{URL: "file:///no/such"},
		{URL: "file://host" + dir},
		{URL: "ssh://git@example.com/x"},
		{URL: "git://example.com/x"},
		{URL: "git@example.com:x"},
		{URL: "ext::sh -c id"},
		{URL: "--upload-pack=id"},
		{URL: "https://u:p@example.com/x"},
		{URL: "https://"},
		{URL: "https://example.com/x?a=b"},
		{URL: "shop"},
		{URL: ""},
		{URL: dir, Ref: "--exec=id"},
		{URL: dir, Ref: "a..b"},
		{URL: dir, Ref: "a b"},
		{URL: dir, Ref: "a:b"},
	} {
		_, err := c.Fetch(t.Context(), "default/shop", "a", src, nil)
		require.True(t, providers.IsInvalid(err), "%+v: %v", src, err)
	}
	got, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: outside}, nil)
	require.NoError(t, err, "a link into an allowed directory leads there")
	got.Release()
	for _, name := range []string{"", "shop", "../x/y", "a/b/c", "A/b", "a/.."} {
		_, err := c.Fetch(t.Context(), name, "a", Source{URL: dir}, nil)
		require.True(t, providers.IsInvalid(err), name)
	}
}

// A repository that is hostile runs nothing here.
func TestNothingOfItIsRun(t *testing.T) {
	t.Parallel()
	dir, run := origin(t)
	mark := filepath.Join(t.TempDir(), "ran")
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("* filter=evil diff=evil\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitmodules"), []byte("[submodule \"x\"]\n\tpath = x\n\turl = ext::touch "+mark+"\n"), 0o600))
	run("add", ".")
	run("commit", "-qm", "evil")
	for _, line := range []string{"filter.evil.smudge", "uploadpack.packObjectsHook", "core.fsmonitor", "diff.evil.command", "core.sshCommand"} {
		run("config", line, "touch "+mark)
	}
	for _, hook := range []string{"post-checkout", "post-update", "reference-transaction"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".git", "hooks", hook), []byte("#!/bin/sh\ntouch "+mark+"\n"), 0o700)) // #nosec G306 -- a hook
	}
	c := cloner(t, Options{Local: []string{dir}})
	got, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: dir}, nil)
	require.NoError(t, err)
	defer got.Release()
	_, err = historyOf(t, got, 10)
	require.NoError(t, err)
	require.NoFileExists(t, mark)
}

// backend serves repositories below a directory, to who has the password, and says what it saw.
func backend(t *testing.T, root string) (at string, asked *lockedbuffer.Buffer) {
	t.Helper()
	path, err := exec.Command("git", "--exec-path").Output()
	require.NoError(t, err)
	asked = &lockedbuffer.Buffer{}
	h := &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"), Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}}
	if _, err := os.Stat(h.Path); err != nil {
		t.Skip("git http-backend is not here")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Write([]byte(r.URL.Path + " " + r.Header.Get("Proxy-Authorization") + "\n"))
		if user, pass, _ := r.BasicAuth(); strings.HasPrefix(r.URL.Path, "/private/") && (user != "robot" || pass != "s3cr3t+/") {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/private")
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

func TestOverHTTP(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		dir, run := origin(t)
		at, asked := backend(t, filepath.Dir(dir))
		var log bytes.Buffer
		has := func(string, string) (Credential, bool) { return Credential{"robot", "s3cr3t+/"}, true }
		c := cloner(t, Options{Git: git, Credentials: has})
		got, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/private/shop", Depth: 1}, &log)
		require.NoError(t, err)
		defer got.Release()
		require.Equal(t, run("rev-parse", "HEAD"), got.Commit)
		config, err := os.ReadFile(filepath.Join(got.Dir, ".git", "config"))
		require.NoError(t, err)
		require.NotContains(t, string(config)+log.String(), "s3cr3t")
		list, err := historyOf(t, got, 10)
		require.NoError(t, err)
		require.Len(t, list, 1, "it is shallow")
		require.Contains(t, asked.String(), "/private/shop/git-upload-pack")
		require.NotContains(t, asked.String(), "Basic", "the password of the proxy goes no further")

		wrong := cloner(t, Options{Git: git, Credentials: func(string, string) (Credential, bool) { return Credential{"robot", "wrong-pass"}, true }})
		_, err = wrong.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/private/shop"}, &log)
		require.True(t, providers.IsInvalid(err), "%v", err)
		require.NotContains(t, err.Error()+log.String(), "wrong-pass")
		_, err = wrong.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/private/shop"}, &log)
		require.Error(t, err)
		none := cloner(t, Options{Git: git})
		_, err = none.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/private/shop"}, &log)
		require.True(t, providers.IsInvalid(err), "%v", err)
		_, err = none.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/nothing"}, &log)
		require.True(t, providers.IsInvalid(err), "%v", err)

		// The guard is asked by each connection.
		for _, g := range []guard.Guard{{Public: true}, {Own: func() []netip.AddrPort {
			return []netip.AddrPort{netip.MustParseAddrPort(strings.TrimPrefix(at, "http://"))}
		}}} {
			shut := cloner(t, Options{Git: git, Guard: g})
			before := asked.String()
			_, err = shut.Fetch(t.Context(), "default/shop", "a", Source{URL: at + "/shop"}, &log)
			require.ErrorContains(t, err, "may not be connected to")
			require.True(t, providers.IsInvalid(err))
			require.Equal(t, before, asked.String())
		}
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		dir, run := origin(t)
		big := make([]byte, 3<<20)
		for i := range big {
			big[i] = byte(i * i >> 3 * (i >> 11))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), big, 0o600))
		run("add", ".")
		run("commit", "-qm", "big")
		at, _ := backend(t, filepath.Dir(dir))
		for _, src := range []Source{{URL: dir}, {URL: at + "/shop"}} {
			c := cloner(t, Options{Local: []string{dir}, Git: git, MaxBytes: 100 << 10})
			_, err := c.Fetch(t.Context(), "default/shop", "a", src, nil)
			require.ErrorContains(t, err, "larger than the 102400 bytes", src.URL)
			require.Equal(t, providers.LimitExceeded, providers.CodeOf(err))
		}
	})
}

// A server that does not answer holds a fetch for as long as its timeout, or until somebody cancels.
func TestTime(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, git string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		came := make(chan net.Conn, 10)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				came <- conn
			}
		}()
		src := Source{URL: "http://" + l.Addr().String() + "/x"}
		quick := cloner(t, Options{Git: git, Timeout: 300 * time.Millisecond})
		_, err = quick.Fetch(t.Context(), "default/shop", "a", src, nil)
		require.Equal(t, providers.Timeout, providers.CodeOf(err), "%v", err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := cloner(t, Options{Git: git})
		go func() { _, err := c.Fetch(ctx, "default/shop", "a", src, nil); done <- err }()
		<-came
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestParseLog(t *testing.T) {
	t.Parallel()
	var list []analyze.Commit
	err := parseLog(strings.NewReader("\x01aa 100 a@x\x00\n1\t2\tb\tc.txt\x00-\t-\tbin\x00\x01bb 50 \x00\x01no end"), func(c analyze.Commit) { list = append(list, c) })
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "b\tc.txt", list[0].Changes[0].Path)
	require.Equal(t, 1, list[0].Changes[0].Added)
	require.Equal(t, 2, list[0].Changes[0].Deleted)
	require.Equal(t, "bin", list[0].Changes[1].Path)
	require.Empty(t, list[1].Changes)
}

// What one host wants to see is told to no other one that it sends on to, and to nobody on the way.
func TestCredentialsAreOfOneHost(t *testing.T) {
	t.Parallel()
	has := func(string, string) (Credential, bool) { return Credential{"robot", "s3cr3t+/"}, true }
	both(t, func(t *testing.T, git string) {
		dir, _ := origin(t)
		behind, _ := backend(t, filepath.Dir(dir))
		var told atomic.Bool
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			told.Store(told.Load() || r.Header.Get("Authorization") != "")
			r.URL, _ = url.Parse(behind + r.URL.String())
			httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.URL.Host}).ServeHTTP(w, r)
		}))
		t.Cleanup(other.Close)
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.String(), http.StatusFound)
		}))
		t.Cleanup(front.Close)
		c := cloner(t, Options{Git: git, Credentials: has})
		if got, err := c.Fetch(t.Context(), "default/shop", "a", Source{URL: front.URL + "/shop"}, nil); err == nil {
			got.Release()
		}
		require.False(t, told.Load())
	})
	c := cloner(t, Options{Credentials: has})
	for at, want := range map[string]bool{"https://git.example/a": true, "http://git.example/a": false, "http://127.0.0.1:1/a": true, "http://localhost/a": true} {
		u, err := url.Parse(at)
		require.NoError(t, err)
		require.Equal(t, want, c.credential("default", u) != Credential{}, at)
	}
}
