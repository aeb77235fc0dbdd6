package tasks_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

// leaving is a server that leaves all tasks to workers elsewhere.
func leaving(t *testing.T) (r *running, url string) {
	t.Helper()
	r = &running{t: t}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	serving, ended := make(chan struct{}), make(chan error, 1)
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = t.TempDir(), "127.0.0.1:0", at, "error"
	ctx, cancel := context.WithCancel(context.Background())
	o := server.Options{
		Machines: []*machines.Machine{repository.Machine, task.Machine, queue.Machine},
		Providers: map[string]server.Provider{
			task.Machine.Name: tasks.Provider(nil), repository.Machine.Name: tasks.RepositoryProvider(), queue.Machine.Name: tasks.QueueProvider(),
		},
		Open: func(_ context.Context, h *server.Host) error {
			h.Serving(func(_ context.Context, url string) error { r.url = url; close(serving); return nil })
			return nil
		},
	}
	go func() { ended <- server.Run(ctx, cfg, o) }()
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { require.NoError(t, stop()) })
	select {
	case <-serving:
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
	}
	return r, "nats://" + at
}

// The workers of docs/examples/taskworker, each in its language, do a task each that the server leaves to others.
func TestWorkersElsewhere(t *testing.T) {
	t.Parallel()
	examples, err := filepath.Abs(filepath.Join("..", "..", "docs", "examples", "taskworker"))
	require.NoError(t, err)
	tools, err := filepath.Abs(filepath.Join("..", "..", "internal", "tooltest"))
	require.NoError(t, err)
	for name, program := range map[string]func(t *testing.T, url string) *exec.Cmd{
		"Go": func(t *testing.T, url string) *exec.Cmd {
			bin := filepath.Join(t.TempDir(), "taskworker")
			out, err := exec.Command("go", "build", "-o", bin, examples).CombinedOutput()
			require.NoError(t, err, string(out))
			return exec.Command(bin, url)
		},
		"Node": func(t *testing.T, url string) *exec.Cmd {
			node, err := exec.LookPath("node")
			if _, missing := os.Stat(filepath.Join(tools, "node_modules", "nats")); err != nil || missing != nil {
				t.Skip("node is not here, or its module nats: make test-tools installs it")
			}
			text, err := os.ReadFile(filepath.Join(examples, "worker.mjs"))
			require.NoError(t, err)
			script := filepath.Join(tools, "node_modules", "taskworker-test.mjs")
			require.NoError(t, os.WriteFile(script, text, 0o600))
			t.Cleanup(func() { _ = os.Remove(script) })
			return exec.Command(node, script, url)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, url := leaving(t)
			cmd := program(t, url)
			said := &lockedbuffer.Buffer{}
			cmd.Stdout, cmd.Stderr = said, said
			r.ok("POST", "/v1/repositories/a/create", `{}`)
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; t.Log(said.String()) })
			r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","params":{"name":"`+name+`"},"run":true}`)
			r.comes("/v1/repositories/a/tasks/one", "succeeded")
			e := r.ok("GET", "/v1/repositories/a/tasks/one", "")
			require.Equal(t, "hello "+name, e["data"].(map[string]any)["result"].(map[string]any)["summary"])
			nc, err := nats.Connect(url)
			require.NoError(t, err)
			defer nc.Close()
			js, err := nc.JetStream()
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				info, err := js.StreamInfo("EFFECTS")
				return err == nil && info.State.Msgs == 0
			}, 20*time.Second, 20*time.Millisecond, "it is acknowledged")
			r.ok("POST", "/v1/repositories/a/tasks/two/create", `{"type":"bake","run":true}`)
			r.comes("/v1/repositories/a/tasks/two", "failed")
			if name == "Go" {
				require.NoError(t, cmd.Process.Signal(os.Interrupt))
				select {
				case err := <-ended:
					ended <- errors.Join(err)
					require.NoError(t, err, said)
				case <-time.After(20 * time.Second):
					require.FailNow(t, "it does not end")
				}
			}
		})
	}
}
