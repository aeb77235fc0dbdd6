package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/pdeathsig"
)

// poolerTester is a *testing.T, for what ends with a test.
type poolerTester interface {
	tester
	Cleanup(func())
}

// Pooler is the DSN of the database of another DSN through a PgBouncer of the test's own, on loopback, with these lines in its
// configuration beside the addresses. Where PgBouncer is not installed the test is skipped, with CI=true it fails.
func (s *Suite) Pooler(t poolerTester, dsn, config string) string {
	t.Helper()
	c := s.Cluster(t)
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin = "/usr/sbin/pgbouncer"; !executable("/usr/sbin", "pgbouncer") {
			if os.Getenv("CI") == "true" {
				t.Fatalf("pgbouncer is not installed (make postgres does it on Debian)")
			}
			t.Skipf("pgbouncer is not installed (make postgres does it on Debian)")
		}
	}
	port, err := freePort()
	if err == nil {
		err = c.pool(t, bin, port, config)
	}
	if err != nil {
		t.Fatalf("pgbouncer: %v", err)
	}
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgbouncer: %v", err)
	}
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", superuser, port, target.Database)
}

// pool starts PgBouncer in front of the cluster, until the test ends.
func (c *Cluster) pool(t poolerTester, bin string, port int, config string) error {
	dir, err := os.MkdirTemp("", "instar-pool-") // which its user gets through to
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	users, path := filepath.Join(dir, "users"), filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = trust\nauth_file = %s\n%s\n",
		c.Port(), port, users, config)
	for file, content := range map[string]string{users: fmt.Sprintf("%q %q\n", superuser, c.password), path: text} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
		if err := c.owner.own(file); err != nil {
			return err
		}
	}
	if err := c.owner.own(dir); err != nil {
		return err
	}
	cmd := exec.Command(bin, path) // #nosec G204 -- what was found is run
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner.credential(), Setpgid: true}
	pdeathsig.Set(cmd.SysProcAttr, syscall.SIGKILL)
	p := &child{cmd: cmd, ended: make(chan struct{}), tail: &tail{}}
	cmd.Stdout, cmd.Stderr = p.tail, p.tail
	if err := p.start(); err != nil {
		return err
	}
	t.Cleanup(func() { _ = p.signal(os.Kill); <-p.ended })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for d := (net.Dialer{}); ; {
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return fmt.Errorf("it ended: %s", p.said())
		case <-ctx.Done():
			return fmt.Errorf("it takes no connections: %s", p.said())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
