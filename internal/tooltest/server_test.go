package tooltest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server is a program of its own, with workers elsewhere for its services.
type server struct{ url, nats, dns, binary, dir string }

var run *server

func TestMain(m *testing.M) {
	code, err := served(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "no server:", err)
		code = 1
	}
	os.Exit(code)
}

func served(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "tooltest")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	run = &server{dir: dir, binary: filepath.Join(dir, "instar")}
	build := exec.Command("go", "build", "-o", run.binary, "./cmd/instar")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("%w: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, run.binary, "dev", "--data", filepath.Join(dir, "data"), "--gateway", "external", "--postgres", "off", "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--dns", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	pipe, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); _ = w.Close() }()
	defer func() { cancel(); <-ended }()
	ready := make(chan error, 1)
	go run.listen(pipe, ready)
	if err := <-ready; err != nil {
		return 1, err
	}
	return m.Run(), nil
}

var (
	httpLine = regexp.MustCompile(`API and docs +(\S+)/docs`)
	natsLine = regexp.MustCompile(`NATS +(nats://\S+)`)
	dnsLine  = regexp.MustCompile(`the name server listens.* address=(\S+)`)
)

// listen reads the addresses, and goes on reading.
func (s *server) listen(out io.Reader, ready chan<- error) {
	lines, text := bufio.NewScanner(out), strings.Builder{}
	told := false
	for lines.Scan() {
		for line, at := range map[*regexp.Regexp]*string{httpLine: &s.url, natsLine: &s.nats, dnsLine: &s.dns} {
			if found := line.FindStringSubmatch(lines.Text()); found != nil {
				*at = found[1]
			}
		}
		if text.WriteString(lines.Text() + "\n"); !told && s.url != "" && s.nats != "" && s.dns != "" {
			told = true
			ready <- nil
		}
	}
	if !told {
		ready <- fmt.Errorf("it ended: %s", text.String())
	}
}

// tool finds a program on PATH or among those of npm; without it the test is skipped.
func tool(t *testing.T, name string) string {
	t.Helper()
	if own, err := filepath.Abs(filepath.Join("node_modules", ".bin", name)); err == nil {
		if _, err := os.Stat(own); err == nil {
			return own
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not here, so nothing was tried with it", name)
	}
	return path
}

// node is node, where the module is installed.
func node(t *testing.T, module string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node_modules", module)); err != nil {
		t.Skipf("the package %s of npm is not here, so nothing was tried with it", module)
	}
	return tool(t, "node")
}

// output runs a command that has to succeed, for up to five minutes.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), tail(out))
	return string(out)
}

func tail(b []byte) []byte { return b[max(0, len(b)-4000):] }

// get reads a document of the server into a file, and gives both.
func get(t *testing.T, path, file string) (string, []byte) {
	t.Helper()
	resp, err := http.Get(run.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	at := filepath.Join(t.TempDir(), file)
	require.NoError(t, os.WriteFile(at, body, 0o600))
	return at, body
}

func instar(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, "", run.binary, append(args, "--server", run.url)...)
}

func lines(text string) []string { return strings.Split(strings.TrimSpace(text), "\n") }
