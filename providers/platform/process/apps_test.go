//go:build linux

package process_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/process"
	gateway "github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/providers/process/cgroup"
)

func TestProcessesKeepTheContract(t *testing.T) {
	t.Parallel()
	keepTheContract(t, func(c process.Config) process.Config { return c })
}

func keepTheContract(t *testing.T, with func(process.Config) process.Config) {
	t.Helper()
	apptest.Run(t, apptest.Suite{World: func(t *testing.T) apptest.World {
		c := with(config(t, t.TempDir()))
		t.Cleanup(func() { // what runs outlives its server
			a, err := process.Open(c)
			require.NoError(t, err)
			require.NoError(t, a.Close(true))
		})
		return apptest.World{
			Open: func(t *testing.T) (app.Provider, func()) {
				a, err := process.Open(c)
				require.NoError(t, err)
				return a, func() { require.NoError(t, a.Close(false)) }
			},
			Left: func(t *testing.T) []string {
				return apptest.Entries(t, c.Dir, "releases/*/home", "tenants/*")
			},
		}
	}})
}

// A release has a directory to work in, the socket of its number, and what a process of a server of this user cannot get rid of.
func TestWhatAProcessGets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	address, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	home, has := filepath.Join(dir, "releases", "default.tenant-acme-r1", "home"), apptest.Ask(t, address)
	require.Equal(t, apptest.Facts{
		Version: "1.0", Port: port, Tenant: "acme", Dir: filepath.Join(dir, "tenants", "default.tenant-acme"), Home: home, Work: home, Secret: "postgres://acme:secret@db/acme",
		PID: has.PID, UID: os.Getuid(), NoNewPrivs: 1, Files: 1024,
	}, has)
	if builtin.CanApart() == nil {
		for _, kind := range []string{"ipc", "uts"} {
			own, err := os.Readlink(fmt.Sprint("/proc/", has.PID, "/ns/", kind))
			require.NoError(t, err)
			ours, err := os.Readlink("/proc/self/ns/" + kind)
			require.NoError(t, err)
			require.NotEqual(t, ours, own)
		}
	}
	require.NoError(t, syscall.Kill(has.PID, syscall.SIGKILL))
	resp, err := http.Get("http://" + address) // the connection waits for the process that is started again
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}

// What a release writes is told by the line, from the beginning to the end, without its secrets; what was told is not told again by the next server.
func TestWhatReleasesWriteIsTold(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	c := config(t, t.TempDir())
	c.Grace = time.Minute // to write its last line in
	c.Versions["talks"] = app.Program{Command: []string{
		"/bin/sh", "-c", `trap : TERM; echo begins; echo "enters $(cat "$DATABASE_URL_FILE")"; printf 'in \033[31mred\n'; head -c 5000 /dev/zero | tr '\0' x; echo
			/bin/sh -c 'LISTEN_PID=$$ exec "$0" application 1.0' "$0"; echo ends`, self,
	}, Env: map[string]string{"GORACE": quick}}
	follow := func(a *process.Apps) (next func() string, stop func()) {
		lines, ended := make(chan app.Line, 100), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { defer close(ended); a.Lines(ctx, func(l app.Line) { lines <- l }) }()
		next = func() string {
			select {
			case l := <-lines:
				require.Equal(t, "tenant-acme-r1", l.Release)
				require.Equal(t, apptest.Release(1, "").Owner, l.Owner)
				return l.Text
			case <-time.After(time.Minute):
				require.Fail(t, "nothing is told")
			}
			return ""
		}
		return next, func() { cancel(); <-ended; require.Empty(t, lines) }
	}
	begins := func(next func() string) {
		t.Helper()
		for _, line := range []string{"begins", "enters ***", "in [31mred", strings.Repeat("x", 4096), strings.Repeat("x", 904)} {
			require.Equal(t, line, next())
		}
	}
	a, err := process.Open(c)
	require.NoError(t, err)
	next, stop := follow(a)
	address, err := a.Deploy(t.Context(), apptest.Release(1, "talks"))
	require.NoError(t, err)
	begins(next)
	stop()
	require.NoError(t, a.Close(false))

	a = opened(t, c)
	next, stop = follow(a)
	require.NoError(t, syscall.Kill(apptest.Ask(t, address).PID, syscall.SIGTERM))
	require.Equal(t, "ends", next())
	begins(next)
	apptest.Ask(t, address) // so that it knows what to do when it is told to end
	require.NoError(t, a.Remove(t.Context(), apptest.Release(1, "talks")))
	require.Equal(t, "ends", next(), "also what is written while it is removed")
	stop()
}

// Of a server that is root, tenants have users of their own, who get to what is theirs, and to nothing of another one.
func TestTenantsHaveUsersOfTheirOwn(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("this test is not root, so it can give no users")
	}
	first := 0x70000000 + 4*os.Getpid() // what a tenant's user runs is ended on the whole machine, also what another run of this test does
	if err := asUser("/bin/true", first).Run(); err != nil {
		t.Skip("this machine has not the users: ", err)
	}
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o711))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	program := filepath.Join(dir, "application") // where others can run it
	raw, err := os.ReadFile(self)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, raw, 0o755))
	c := config(t, filepath.Join(dir, "apps"))
	c.FirstUser, c.LastUser = first, first+3
	c.Versions["1.0"] = app.Program{Command: []string{program, "application", "1.0"}, Env: map[string]string{"GORACE": quick}}
	a := opened(t, c)
	other := apptest.Release(1, "1.0")
	other.Tenant, other.Name, other.Owner = "tenant-other", "tenant-other-r1", "default.other.own"
	other.Limits = app.Limits{Files: 77}
	var users []int
	for _, r := range []app.Release{apptest.Release(1, "1.0"), other, apptest.Release(2, "1.0")} {
		require.NoError(t, a.Ensure(t.Context(), r.Of()))
		address, err := a.Deploy(t.Context(), r)
		require.NoError(t, err)
		has := apptest.Ask(t, address)
		users = append(users, has.UID)
		require.Equal(t, "postgres://acme:secret@db/acme", has.Secret, "it can read its own")
		require.Equal(t, 1, has.NoNewPrivs)
		for _, own := range []string{has.Dir, has.Home, filepath.Join(has.Home, "tmp"), filepath.Join(has.Home, ".secrets", "database_url")} {
			info, err := os.Stat(own)
			require.NoError(t, err)
			require.Zero(t, info.Mode()&0o077, "%s is closed to others", own)
			require.Equal(t, uint32(has.UID), info.Sys().(*syscall.Stat_t).Uid, own)
		}
		if r.Limits.Files > 0 {
			require.Equal(t, uint64(77), has.Files)
		}
	}
	require.Equal(t, []int{first, first + 1, first}, users)
	third := app.Tenant{Namespace: "default", Name: "tenant-third", Owner: "third"}
	gone, stays := hidden(t, asUser("/bin/sleep", first+1, "600")), hidden(t, asUser("/bin/sleep", first, "600"))
	require.NoError(t, a.Remove(t.Context(), other))
	stops := hidden(t, asUser(program, first+1, "stops-all"))
	require.NoError(t, a.Forget(t.Context(), app.Tenant{Namespace: "default", Name: other.Tenant, Owner: "another"}))
	require.True(t, gone.runs(), "it is not that one's to end")
	require.NoError(t, a.Forget(t.Context(), other.Of()))
	require.False(t, gone.runs())
	require.False(t, stops.runs(), "what stops everything that it may")
	require.True(t, stays.runs(), "the other tenant's")
	require.NoError(t, a.Ensure(t.Context(), third))
	info, err := os.Stat(filepath.Join(dir, "apps", "tenants", "default.tenant-third"))
	require.NoError(t, err)
	require.Equal(t, uint32(first+2), info.Sys().(*syscall.Stat_t).Uid, "not that of the tenant who is gone")
	require.NoError(t, a.Forget(t.Context(), third))
	require.ErrorContains(t, a.Ensure(t.Context(), third), fmt.Sprintf("all users from %d to %d were given to tenants", first, first+2))
}

// A release that may make groups of the kernel is limited with all that it starts, and its group ends with it.
func TestAReleaseIsLimitedAsAWhole(t *testing.T) {
	t.Parallel()
	kernel, missing := cgroup.Probe("/sys/fs/cgroup")
	c := config(t, t.TempDir())
	a, r := opened(t, c), apptest.Release(1, "1.0")
	r.Limits = app.Limits{CPU: 500}
	if !kernel.Has(cgroup.CPU) {
		_, err := a.Deploy(t.Context(), r)
		require.True(t, providers.IsInvalid(err), "%v", err)
		t.Skip("this kernel lets the test make no groups: ", missing[cgroup.CPU])
	}
	address, err := a.Deploy(t.Context(), r)
	require.NoError(t, err)
	in, err := os.ReadFile(fmt.Sprint("/proc/", apptest.Ask(t, address).PID, "/cgroup"))
	require.NoError(t, err)
	name := regexp.MustCompile(`instar-[0-9a-f]{8}-default\.tenant-acme-r1`).FindString(string(in))
	require.NotEmpty(t, name, "%s", in)
	groups := kernel.Groups(name, cgroup.Limits{CPU: 500})
	require.Len(t, groups, 1)
	for file, value := range groups[0].Files {
		raw, err := os.ReadFile(filepath.Join(groups[0].Dir, file))
		require.NoError(t, err)
		require.Equal(t, value, strings.TrimSpace(string(raw)))
	}
	require.NoError(t, a.Remove(t.Context(), r))
	require.NoDirExists(t, groups[0].Dir)
}

// A disk that is full keeps a release from being made, and nothing of it stays; when there is room again, it is made.
func TestAFullDiskLeavesNothingOfARelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Skip("cannot mount a small file system: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	a, r := opened(t, config(t, dir)), apptest.Release(1, "1.0")
	require.NoError(t, a.Ensure(t.Context(), r.Of()))
	filler := filepath.Join(dir, "filler")
	require.ErrorIs(t, os.WriteFile(filler, make([]byte, 8<<20), 0o600), unix.ENOSPC)
	_, err := a.Deploy(t.Context(), r)
	require.ErrorContains(t, err, "no space left on device")
	require.Empty(t, apptest.Entries(t, dir, "releases/*/home"))
	_, err = a.Look(t.Context(), r.Namespace, r.Name)
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.NoError(t, os.Remove(filler))
	address, err := a.Deploy(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "1.0", apptest.Ask(t, address).Version)
}

// asUser is a program of a user that nothing in its environment and no group shows to be of a release.
func asUser(program string, user int, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}
	return cmd
}

// hidden starts a program, which ends with the test.
func hidden(t *testing.T, cmd *exec.Cmd) *stray {
	t.Helper()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return &stray{t, cmd.Process.Pid}
}

// stray is a child of the test.
type stray struct {
	t   *testing.T
	pid int
}

// runs reports whether it has not ended. Nobody has waited for it.
func (s *stray) runs() bool {
	var info unix.Siginfo
	require.NoError(s.t, unix.Waitid(unix.P_PID, s.pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil))
	return info.Signo == 0
}

// What a tenant has put in the way of its secrets leads nowhere else.
func TestLinksOfATenantLeadNowhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	address, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
	secrets, elsewhere := filepath.Join(apptest.Ask(t, address).Home, ".secrets"), t.TempDir()
	require.NoError(t, os.RemoveAll(secrets))
	require.NoError(t, os.Symlink(elsewhere, secrets))
	_, err = a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.Error(t, err)
	require.Empty(t, holding(t, elsewhere, "secret@db"))
}

func TestSecretsAreInFilesOfTheOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	address, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
	files := holding(t, dir, "secret@db")
	require.Equal(t, []string{filepath.Join(dir, "releases/default.tenant-acme-r1/home/.secrets/database_url")}, files)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", apptest.Ask(t, address).PID))
	require.NoError(t, err)
	require.NotContains(t, string(environ), "secret@db")
	require.NoError(t, a.Remove(t.Context(), apptest.Release(1, "")))
	require.Empty(t, holding(t, dir, "secret@db"))
}

// holding are the files below a directory that have a text.
func holding(t *testing.T, dir, text string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".part-") { // which the gateway is just writing
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(raw), text) {
			list = append(list, path)
		}
		return err
	}))
	return list
}

func TestUsedUpPortsAreToldAsThat(t *testing.T) {
	t.Parallel()
	c := config(t, t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	c.Ports = gateway.Ports{First: port, Last: port}
	_, err = opened(t, c).Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "free one, or widen the range")
	require.Empty(t, holding(t, c.Dir, "secret@db"))
}

// After a restore a slug may have been given free whose directory is there: it is not the next one's, whoever gets the slug.
func TestADirectoryIsItsOwners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	tenant := filepath.Join(dir, "tenants", "default.tenant-acme")
	own, next := app.Tenant{Namespace: "default", Name: "tenant-acme", Owner: "own"}, app.Tenant{Namespace: "default", Name: "tenant-acme", Owner: "next"}
	require.NoError(t, a.Ensure(t.Context(), own))
	require.NoError(t, a.Ensure(t.Context(), own))
	require.True(t, providers.IsInvalid(a.Ensure(t.Context(), next)))
	require.NoError(t, a.Forget(t.Context(), next))
	require.DirExists(t, tenant)

	require.NoError(t, os.Remove(tenant+".owner")) // as an earlier server has left it
	require.NoError(t, a.Ensure(t.Context(), next))
	require.True(t, providers.IsInvalid(a.Ensure(t.Context(), own)))
	require.NoError(t, os.RemoveAll(tenant)) // and what a crash has left
	require.NoError(t, a.Ensure(t.Context(), own))
	require.NoError(t, a.Forget(t.Context(), own))
	left, err := os.ReadDir(filepath.Dir(tenant))
	require.NoError(t, err)
	require.Empty(t, left)
}

// What keeps the directory of a release from being removed is told at once, and the end goes on when that is mended.
func TestADirectoryThatCannotBeRemovedIsTold(t *testing.T) {
	t.Parallel()
	a := opened(t, config(t, t.TempDir()))
	address, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.NoError(t, err)
	kept := filepath.Join(apptest.Ask(t, address).Work, "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	mend := immutable(t, kept)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = a.Remove(ctx, apptest.Release(1, ""))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "kept: operation not permitted")
	mend()
	require.NoError(t, a.Remove(ctx, apptest.Release(1, "")))
	require.NoFileExists(t, kept)
}

// immutable keeps a file from being removed, until the function that it returns is called.
func immutable(t *testing.T, path string) (mend func()) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	set := func(flags int) error { return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	const immutable = 0x10 // FS_IMMUTABLE_FL
	if err := set(immutable); err != nil {
		t.Skip("nothing here can be kept from being removed: ", err)
	}
	mend = sync.OnceFunc(func() { require.NoError(t, errors.Join(set(0), f.Close())) })
	t.Cleanup(mend)
	return mend
}
