package tasks_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
)

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
		"nats CLI": func(t *testing.T, url string) *exec.Cmd {
			_, missing := exec.LookPath("jq")
			cli, err := exec.LookPath("nats")
			if err != nil || missing != nil {
				t.Skip("the nats CLI is not here, or jq: make test-tools installs them")
			}
			cmd := exec.Command("/bin/sh", filepath.Join(examples, "worker.sh"), url, "fx-task-run=greeters")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cli)+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir())
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			return cmd
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil)
			url := r.nats
			cmd := program(t, url)
			said := &lockedbuffer.Buffer{}
			cmd.Stdout, cmd.Stderr = said, said
			r.ok("POST", "/v1/repositories/a/create", `{}`)
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended; t.Log(said.String()) })
			r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","pool":"greeters","params":{"name":"`+name+`"},"run":true}`)
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
			r.ok("POST", "/v1/repositories/a/tasks/two/create", `{"type":"bake","pool":"greeters","run":true}`)
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

// The log of a task is read by one consumer, whatever it has of lines, and has no more than the last thousand.
func TestALogIsReadAtOnce(t *testing.T) {
	t.Parallel()
	const lines, kept = 1010, 1000
	r := start(t, nil)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	made, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.CREATED.LOGS.>")
	require.NoError(t, err)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","pool":"elsewhere"}`)
	js, err := nc.JetStream()
	require.NoError(t, err)
	for i := range lines {
		_, err := js.PublishAsync("instar.log.task.default.a.one", []byte("line "+strconv.Itoa(i)))
		require.NoError(t, err)
	}
	<-js.PublishAsyncComplete()
	_, log := r.do("GET", "/v1/tasks/one/logs?follow=false", "")
	require.Equal(t, kept, strings.Count(log, "event: log\n"), log)
	require.Contains(t, log, `"line 10"`)
	require.NotContains(t, log, `"line 9"`)
	require.Contains(t, log, "these are the lines that are kept")
	require.NoError(t, nc.Flush())
	n, _, err := made.Pending()
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
