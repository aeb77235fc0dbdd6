package postgres

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childDir makes this test binary a parent that starts a cluster there and then waits to be killed.
const childDir = "POSTGRES_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		c, err := Start(context.Background(), options(dir))
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(c.PID()) + "\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func options(dir string) Options {
	return Options{Dir: dir, Config: map[string]string{"fsync": "off"}, KeepRunning: strings.HasSuffix(dir, "-keep")}
}

func start(t *testing.T, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	if s := (&Suite{err: err, cluster: c}); err != nil {
		s.once.Do(func() {})
		s.Cluster(t)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	return c
}

func ask(t *testing.T, dsn, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var answer string
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&answer))
	return answer
}

func directory(t *testing.T, suffix string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "instar-pg-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "pg"+suffix)
}

func TestCluster(t *testing.T) {
	t.Parallel()
	dir := directory(t, "")
	c := start(t, options(dir))
	dsn, err := c.Database(t.Context())
	require.NoError(t, err)
	require.Equal(t, "off", ask(t, dsn, "show fsync"))

	// The password is needed, on both doors, and nobody else may read it.
	info, err := os.Stat(filepath.Join(dir, "password"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for _, host := range []string{"127.0.0.1", c.Socket()} {
		_, err = pgx.Connect(t.Context(), "host="+host+" port="+strconv.Itoa(c.Port())+" user=instar password=wrong dbname=postgres sslmode=disable")
		require.ErrorContains(t, err, "password authentication failed", host)
	}

	// Killed with all its processes it comes back on its port with what was committed.
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create table kept as select 'here' as word")
	require.NoError(t, err)
	busy, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	go func() { _, _ = busy.Exec(context.Background(), `select pg_sleep(60)`) }()
	before, port := c.PID(), c.Port()
	require.NoError(t, c.Kill())
	require.Empty(t, within(c.data()))
	require.Error(t, conn.Ping(t.Context()))
	require.Error(t, c.Kill(), "it does not run")
	require.Zero(t, c.PID())
	require.NoError(t, c.Restart(t.Context()))
	require.NotEqual(t, before, c.PID())
	require.Equal(t, port, c.Port())
	require.Equal(t, "here", ask(t, dsn, "select word from kept"))

	// A second process is refused, a stopped cluster is found again.
	_, err = Start(t.Context(), options(dir))
	require.ErrorContains(t, err, "another process uses it")
	pid := c.PID()
	require.NoError(t, c.Stop(t.Context()))
	require.False(t, alive(pid))
	again := start(t, options(dir))
	require.Equal(t, c.password, again.password)
}

// parent starts a cluster in another process, kills that, and returns the server's pid.
func parent(t *testing.T, dir string) int {
	t.Helper()
	if _, err := binaries("", ""); err != nil {
		(&Suite{}).Cluster(t)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 32)
	n, err := out.Read(line)
	require.NoError(t, err, "%s", &said)
	pid, err := strconv.Atoi(strings.TrimSpace(string(line[:n])))
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	return pid
}

func TestKilledParent(t *testing.T) {
	t.Parallel()
	t.Run("TakesItsServerAlong", func(t *testing.T) {
		t.Parallel()
		dir := directory(t, "")
		pid := parent(t, dir)
		require.Eventually(t, func() bool { return !alive(pid) }, 20*time.Second, 10*time.Millisecond)
		start(t, options(dir))
	})
	t.Run("LeavesItToTheNextWhenToldSo", func(t *testing.T) {
		t.Parallel()
		dir := directory(t, "-keep")
		pid := parent(t, dir)
		c := start(t, options(dir))
		require.Equal(t, pid, c.PID(), "adopted")
		require.Equal(t, "1", ask(t, c.DSN("postgres"), "select '1'"))
		require.NoError(t, c.Stop(t.Context()))
		require.False(t, alive(pid))
	})
	t.Run("IsStoppedByTheNext", func(t *testing.T) {
		t.Parallel()
		dir := directory(t, "-keep")
		pid := parent(t, dir)
		o := options(dir)
		o.KeepRunning = false
		c := start(t, o)
		require.NotEqual(t, pid, c.PID())
		require.False(t, alive(pid))
	})
}

func TestWithoutPostgres(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: directory(t, ""), Bin: t.TempDir()})
	require.ErrorIs(t, err, ErrNoPostgres)
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	o := options(directory(t, ""))
	o.Config["shared_buffers"] = "nonsense"
	o.Port = 1
	if _, err := binaries("", ""); err != nil {
		(&Suite{}).Cluster(t)
	}
	_, err := Start(t.Context(), o)
	require.ErrorContains(t, err, "shared_buffers")
}

func TestUnreachableDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	dir := directory(t, "")
	require.NoError(t, os.Mkdir(dir, 0o700))
	_, err := Start(t.Context(), options(filepath.Join(dir, "below")))
	require.ErrorContains(t, err, "cannot pass "+dir)
}

func TestLongDirectoryHasNoSocket(t *testing.T) {
	t.Parallel()
	c := start(t, options(filepath.Join(directory(t, ""), strings.Repeat("long", 30))))
	require.Empty(t, c.Socket())
	require.Equal(t, "1", ask(t, c.DSN("postgres"), "select '1'"))
}
