// Package servertest runs servers as processes of their own, so that tests can kill them. The process is the binary of the test, run anew.
package servertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// settings is the variable that makes a process the server: its configuration.
const settings = "INSTAR_TEST_SERVER"

// Main serves, and ends the process, where it was started as a server; TestMain calls it first.
func Main(o server.Options) {
	text := os.Getenv(settings)
	if text == "" {
		return
	}
	var cfg config.Config
	err := json.Unmarshal([]byte(text), &cfg)
	if err == nil {
		o.Open = func(_ context.Context, h *server.Host) error {
			h.Serving(func(_ context.Context, url string) error { fmt.Println(url); return nil })
			return nil
		}
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(3) }() // the test has ended without killing it
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = server.Run(ctx, cfg, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Process is a server in a process of its own.
type Process struct {
	T      *testing.T
	Config config.Config
	URL    string    // of its API, once it serves
	Log    io.Writer // gets what it says on its standard error, which is whole after Kill; may be nil
	cmd    *exec.Cmd
	in     io.Closer // it ends when this is closed
}

// Port is one on loopback where nobody listens now.
func Port(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (p *Process) command(ctx context.Context) *exec.Cmd {
	p.T.Helper()
	text, err := json.Marshal(p.Config)
	require.NoError(p.T, err)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), settings+"="+string(text))
	return cmd
}

// Start starts it, and waits until it serves.
func (p *Process) Start() {
	p.T.Helper()
	p.cmd = p.command(context.WithoutCancel(p.T.Context()))
	if p.cmd.Stderr = os.Stderr; p.Log != nil {
		p.cmd.Stderr = io.MultiWriter(os.Stderr, p.Log)
	}
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(p.T, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(p.T, err)
	require.NoError(p.T, p.cmd.Start())
	p.T.Cleanup(p.Kill)
	line := ""
	for s := bufio.NewScanner(out); !strings.HasPrefix(line, "http") && s.Scan(); {
		line = s.Text()
	}
	require.NotEmpty(p.T, line, "the server says where it is")
	p.URL = line
	go func() { _, _ = io.Copy(io.Discard, out) }()
}

// Refused starts a server that is to end by itself, and returns what it says.
func (p *Process) Refused() string {
	p.T.Helper()
	ctx, cancel := context.WithTimeout(p.T.Context(), time.Minute)
	defer cancel()
	cmd := p.command(ctx)
	_, err := cmd.StdinPipe()
	require.NoError(p.T, err)
	out, err := cmd.CombinedOutput()
	require.Error(p.T, err)
	require.NoError(p.T, ctx.Err(), "it goes on")
	return string(out)
}

// Kill ends it as a power loss of its machine would, but for its files and what it has started.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Stop tells it to stop, which it is to do in order, and before anything of it is given up.
func (p *Process) Stop() {
	p.T.Helper()
	require.NoError(p.T, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(p.T, p.cmd.Wait())
}

// Ask sends JSON to a server, and returns the status and the JSON of the answer.
func Ask(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var v map[string]any
	require.NoError(t, json.Unmarshal(text, &v), "%s %s: %s", method, url, text)
	return resp.StatusCode, v
}

// Do asks it; see [Ask].
func (p *Process) Do(method, path, body string) (int, map[string]any) {
	p.T.Helper()
	return Ask(p.T, method, p.URL+path, body)
}

// OK is Do for what is to be accepted.
func (p *Process) OK(method, path, body string) map[string]any {
	p.T.Helper()
	status, v := p.Do(method, path, body)
	require.Less(p.T, status, 300, "%s %s: %v", method, path, v)
	return v
}
