//go:build linux

package process_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/process"
	gateway "github.com/bcc94042/instar/providers/process"
)

func TestReleasesRunBesideEachOtherAndEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	require.NoError(t, a.Ensure("default", "tenant-acme", "own"))
	first, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	again, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	require.Equal(t, first, again)
	second, err := a.Deploy(t.Context(), release(2, "1.1"))
	require.NoError(t, err)

	one, two := ask(t, first), ask(t, second)
	_, port, err := net.SplitHostPort(first)
	require.NoError(t, err)
	tenant := filepath.Join(dir, "tenants", "default.tenant-acme")
	home := filepath.Join(dir, "releases", "default.tenant-acme-r1", "home")
	require.Equal(t, facts{Version: "1.0", Port: port, Tenant: "acme", Dir: tenant, Work: home, Secret: "postgres://acme:secret@db/acme", PID: one.PID}, one)
	require.Equal(t, "1.1", two.Version)
	require.Equal(t, tenant, two.Dir)

	require.NoError(t, os.WriteFile(filepath.Join(tenant, "kept"), nil, 0o600))
	for range 2 {
		require.NoError(t, a.Remove(t.Context(), release(1, "")))
	}
	require.NoDirExists(t, home)
	require.ErrorIs(t, syscall.Kill(one.PID, 0), syscall.ESRCH)
	require.Equal(t, two.PID, ask(t, second).PID)
	require.FileExists(t, filepath.Join(tenant, "kept"))
	require.NoError(t, a.Remove(t.Context(), release(2, "")))
	for range 2 {
		require.NoError(t, a.Forget("default", "tenant-acme", "own"))
	}
	require.NoDirExists(t, tenant)
}

func TestARestartedServerFindsWhatRuns(t *testing.T) {
	t.Parallel()
	c := config(t, t.TempDir())
	a, err := process.Open(c)
	require.NoError(t, err)
	address, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	before := ask(t, address)
	require.NoError(t, a.Close(false))
	require.Equal(t, before.PID, ask(t, address).PID, "it is served while no server runs")
	a = opened(t, c)
	again, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	require.Equal(t, address, again)
	require.Equal(t, before.PID, ask(t, address).PID)
	require.NoError(t, syscall.Kill(before.PID, syscall.SIGKILL))
	require.NotEqual(t, before.PID, ask(t, address).PID, "the connection waits for the process that is started again")
}

func TestOneThatIsNeverHealthyIsToldAndTriedAnew(t *testing.T) {
	t.Parallel()
	a := opened(t, config(t, t.TempDir()))
	for range 2 {
		_, err := a.Deploy(t.Context(), release(1, "sick"))
		var unhealthy *process.UnhealthyError
		require.ErrorAs(t, err, &unhealthy)
		require.ErrorContains(t, err, "exit code 5: the schema is not there")
	}
	at, err := a.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.False(t, at.Ready)
	require.Contains(t, at.Status, "the schema is not there")
	address, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	require.Equal(t, "1.0", ask(t, address).Version)
}

// What a program says last goes into events.
func TestSecretsAreNotInMessages(t *testing.T) {
	t.Parallel()
	a := opened(t, config(t, t.TempDir()))
	_, err := a.Deploy(t.Context(), release(1, "leaky"))
	require.ErrorContains(t, err, "cannot enter ***, nor postgres://other:***@db: the password *** is wrong")
	at, err := a.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.Contains(t, at.Status, "the password *** is wrong")
}

// An attempt that was overtaken by the removal makes nothing, and leaves no secret.
func TestAnOlderAttemptMakesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	require.NoError(t, a.Remove(t.Context(), release(2, "")))
	late := release(2, "1.0")
	late.Fence--
	_, err := a.Deploy(t.Context(), late)
	require.True(t, providers.IsFenced(err), "%v", err)
	_, err = a.Look(t.Context(), "default", late.Name)
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.Empty(t, holding(t, dir, "secret@db"))
}

func TestSecretsAreInFilesOfTheOwnerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	address, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	files := holding(t, dir, "secret@db")
	require.Equal(t, []string{filepath.Join(dir, "releases/default.tenant-acme-r1/home/.secrets/database_url")}, files)
	info, err := os.Stat(files[0])
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode())
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", ask(t, address).PID))
	require.NoError(t, err)
	require.NotContains(t, string(environ), "secret@db")
	require.NoError(t, a.Remove(t.Context(), release(1, "")))
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
	_, err = opened(t, c).Deploy(t.Context(), release(1, "1.0"))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "free one, or widen the range")
	require.Empty(t, holding(t, c.Dir, "secret@db"))
}

func TestWhatCannotRunIsInvalid(t *testing.T) {
	t.Parallel()
	a := opened(t, config(t, t.TempDir()))
	for what, change := range map[string]func(*process.Release){
		"version": func(r *process.Release) { r.Version = "2.0" },
		"tenant":  func(r *process.Release) { r.Tenant = "../x" },
		"name":    func(r *process.Release) { r.Name = "a/b" },
		"env":     func(r *process.Release) { r.Env = map[string]string{"LD_PRELOAD": "x"} },
		"secret":  func(r *process.Release) { r.Secrets = map[string]string{"../X": "x"} },
	} {
		r := release(1, "1.0")
		change(&r)
		_, err := a.Deploy(t.Context(), r)
		require.True(t, providers.IsInvalid(err), "%s: %v", what, err)
	}
	require.True(t, providers.IsInvalid(a.Forget("default", "..", "own")))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := a.Deploy(ctx, release(1, "1.0"))
	require.Equal(t, providers.Timeout, providers.CodeOf(err))
}

// After a restore a slug may have been given free whose directory is there: it is not the next one's, whoever gets the slug.
func TestADirectoryIsItsOwners(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := opened(t, config(t, dir))
	tenant := filepath.Join(dir, "tenants", "default.tenant-acme")
	require.NoError(t, a.Ensure("default", "tenant-acme", "own"))
	require.NoError(t, a.Ensure("default", "tenant-acme", "own"))
	require.True(t, providers.IsInvalid(a.Ensure("default", "tenant-acme", "next")))
	require.NoError(t, a.Forget("default", "tenant-acme", "next"))
	require.DirExists(t, tenant)

	require.NoError(t, os.Remove(tenant+".owner")) // as an earlier server has left it
	require.NoError(t, a.Ensure("default", "tenant-acme", "next"))
	require.True(t, providers.IsInvalid(a.Ensure("default", "tenant-acme", "own")))
	require.NoError(t, os.RemoveAll(tenant)) // and what a crash has left
	require.NoError(t, a.Ensure("default", "tenant-acme", "own"))
	require.NoError(t, a.Forget("default", "tenant-acme", "own"))
	left, err := os.ReadDir(filepath.Dir(tenant))
	require.NoError(t, err)
	require.Empty(t, left)
}

// What keeps the directory of a release from being removed is told at once, and the end goes on when that is mended.
func TestADirectoryThatCannotBeRemovedIsTold(t *testing.T) {
	t.Parallel()
	a := opened(t, config(t, t.TempDir()))
	address, err := a.Deploy(t.Context(), release(1, "1.0"))
	require.NoError(t, err)
	kept := filepath.Join(ask(t, address).Work, "kept")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	mend := immutable(t, kept)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = a.Remove(ctx, release(1, ""))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "kept: operation not permitted")
	mend()
	require.NoError(t, a.Remove(ctx, release(1, "")))
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
