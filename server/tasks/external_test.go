package tasks_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/server/config"
)

// exampleWorkers are the programs of docs/examples/taskworker, by their language.
func exampleWorkers(t *testing.T) map[string]func(t *testing.T, url string) *exec.Cmd {
	examples, err := filepath.Abs(filepath.Join("..", "..", "docs", "examples", "taskworker"))
	require.NoError(t, err)
	tools, err := filepath.Abs(filepath.Join("..", "..", ".tools", "samples"))
	require.NoError(t, err)
	return map[string]func(t *testing.T, url string) *exec.Cmd{
		"Go": func(t *testing.T, url string) *exec.Cmd {
			bin := filepath.Join(t.TempDir(), "taskworker")
			out, err := exec.Command("go", "build", "-o", bin, examples).CombinedOutput()
			require.NoError(t, err, string(out))
			return exec.Command(bin, url)
		},
		"Node": func(t *testing.T, url string) *exec.Cmd {
			node, err := exec.LookPath("node")
			if _, missing := os.Stat(filepath.Join(tools, "node_modules", "nats")); err != nil || missing != nil {
				t.Skip("node is not here, or its module nats: make samples installs it")
			}
			text, err := os.ReadFile(filepath.Join(examples, "worker.mjs"))
			require.NoError(t, err)
			script, err := os.CreateTemp(filepath.Join(tools, "node_modules"), "taskworker-*.mjs")
			require.NoError(t, err)
			t.Cleanup(func() { _ = os.Remove(script.Name()) })
			_, err = script.Write(text)
			require.NoError(t, errors.Join(err, script.Close()))
			return exec.Command(node, script.Name(), url)
		},
		"nats CLI": func(t *testing.T, url string) *exec.Cmd {
			_, missing := exec.LookPath("jq")
			cli, err := exec.LookPath("nats")
			if err != nil || missing != nil {
				t.Skip("the nats CLI is not here, or jq: make samples installs them")
			}
			cmd := exec.Command("/bin/sh", filepath.Join(examples, "worker.sh"), url, "fx-task-run=greeters")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(cli)+":"+os.Getenv("PATH"), "XDG_CONFIG_HOME="+t.TempDir())
			return cmd
		},
	}
}

// runs starts a program, and kills it at the end of the test with all that it has started, which would hold its output.
func runs(t *testing.T, cmd *exec.Cmd) (said *lockedbuffer.Buffer, ended chan error) {
	t.Helper()
	said, ended = &lockedbuffer.Buffer{}, make(chan error, 1)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = said, said, &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended; t.Log(said.String()) })
	return said, ended
}

// The workers of docs/examples/taskworker, each in its language, do a task each that the server leaves to others.
func TestWorkersElsewhere(t *testing.T) {
	t.Parallel()
	for name, program := range exampleWorkers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, nil)
			url := r.nats
			r.ok("POST", "/v1/repositories/a/create", `{}`)
			cmd := program(t, url)
			said, ended := runs(t, cmd)
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

// What a worker in a shell has started for its signs of life ends with it, also by kill -9: its task goes to another one.
func TestAShellThatIsKilledKeepsNoTask(t *testing.T) {
	t.Parallel()
	program := exampleWorkers(t)["nats CLI"]
	r := start(t, nil)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	signs, err := nc.SubscribeSync("$JS.ACK.EFFECTS.fx-task-run=greeters.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	cmd := program(t, r.nats)
	_, ended := runs(t, cmd)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","pool":"greeters","params":{"name":"you","seconds":120},"run":true}`)
	m, err := signs.NextMsg(time.Minute)
	require.NoError(t, err)
	require.Equal(t, "+WPI", string(m.Data))
	require.NoError(t, cmd.Process.Kill())
	js, err := nc.JetStream()
	require.NoError(t, err)
	other, err := js.PullSubscribe("instar.fx.task.run=greeters.>", "", nats.Bind("EFFECTS", "fx-task-run=greeters"))
	require.NoError(t, err)
	again, err := other.Fetch(1, nats.MaxWait(time.Minute))
	require.NoError(t, err, "after the ack wait")
	require.Contains(t, string(again[0].Data), `"id":"one"`)
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its work, which holds its output
	require.Error(t, <-ended)
	ended <- nil
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

// follow reads the log lines that come over one connection, as <task> <line>, and what they are behind.
func (r *running) follow(query string) <-chan [2]string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+"/v1/logs?"+query, http.NoBody)
	require.NoError(r.t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, res.StatusCode)
	lines := make(chan [2]string)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(lines)
		var id string
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			var l struct{ Task, Line string }
			if text, is := strings.CutPrefix(s.Text(), "id: "); is {
				id = text
			} else if text, is := strings.CutPrefix(s.Text(), "data: "); is && json.Unmarshal([]byte(text), &l) == nil {
				select {
				case lines <- [2]string{l.Task + " " + l.Line, id}:
				case <-req.Context().Done():
					return
				}
			}
		}
	})
	r.t.Cleanup(func() { _ = res.Body.Close(); reading.Wait() })
	return lines
}

// line is the next of them.
func (r *running) line(lines <-chan [2]string) [2]string {
	r.t.Helper()
	select {
	case l, ok := <-lines:
		require.True(r.t, ok, "the connection has ended")
		return l
	case <-time.After(time.Minute):
		require.FailNow(r.t, "no line within a minute")
		return [2]string{}
	}
}

// Logs of several tasks come over one connection, each from where it is asked for.
func TestLogsOverOneConnection(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	js, err := nc.JetStream()
	require.NoError(t, err)
	say := func(task, line string) {
		t.Helper()
		_, err := js.Publish("instar.log.task.default."+task, []byte(line))
		require.NoError(t, err)
	}
	say("a.one", "first")
	say("b.two", "second")
	say("a.three", "of nobody")
	lines := r.follow("task=.a.one&task=default.b.two")
	first, second := r.line(lines), r.line(lines)
	require.Equal(t, "default.a.one first", first[0])
	require.Equal(t, "default.b.two second", second[0])
	say("a.one", "third")
	third := r.line(lines)
	require.Equal(t, "default.a.one third", third[0])
	again := r.follow("task=default.a.one:" + first[1] + "&task=default.b.two")
	require.Equal(t, second, r.line(again), "the first line is known")
	require.Equal(t, third, r.line(again))
	most := "task=default.a.one"
	for i := range 63 {
		most += "&task=default.a.x" + strconv.Itoa(i)
	}
	require.Equal(t, first, r.line(r.follow(most)))
	for _, query := range []string{"", "task=one", "task=default.a.", "task=default.a.one:x", most + "&task=default.a.more"} {
		r.refused(422, "GET", "/v1/logs?"+query, "")
	}
}

// HEAD asks for the headers of a log only: what is asked next over the connection is answered.
func TestHeadersOfALogEndIt(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","pool":"elsewhere"}`)
	over := &http.Transport{MaxConnsPerHost: 1}
	defer over.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(method, path string) (status int, kind string) {
		req, err := http.NewRequestWithContext(ctx, method, r.url+path, http.NoBody)
		require.NoError(t, err)
		res, err := over.RoundTrip(req)
		require.NoError(t, err, path)
		require.NoError(t, res.Body.Close())
		return res.StatusCode, res.Header.Get("Content-Type")
	}
	for _, path := range []string{"/v1/tasks/one/logs?repository=a", "/v1/logs?task=default.a.one"} {
		status, kind := ask(http.MethodHead, path)
		require.Equal(t, 200, status, path)
		require.Equal(t, "text/event-stream", kind, path)
		status, _ = ask(http.MethodGet, "/v1/machines")
		require.Equal(t, 200, status, path)
	}
}

// A token of one namespace follows logs of that, and gets nothing of another one, also beside its own.
func TestForeignLogsAreNotFollowed(t *testing.T) {
	t.Parallel()
	tokens := []config.Token{{Name: "acme", Role: "read", Namespace: "acme"}, {Name: "all", Role: "read", Namespace: config.AllNamespaces}}
	for i := range tokens {
		tokens[i].Hash = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(tokens[i].Name)))
	}
	r := start(t, nil, func(c *config.Config) { c.Insecure, c.Auth.Tokens = true, tokens })
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	js, err := nc.JetStream()
	require.NoError(t, err)
	for _, task := range []string{"default.a.one", "acme.a.one"} {
		_, err := js.Publish("instar.log.task."+task, []byte("of "+task))
		require.NoError(t, err)
	}
	get := func(token, query string) (status int, line string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/v1/logs?"+query, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		for s := bufio.NewScanner(res.Body); s.Scan(); {
			if text, is := strings.CutPrefix(s.Text(), "data: "); is || res.StatusCode != 200 {
				return res.StatusCode, text
			}
		}
		return res.StatusCode, ""
	}
	for query, token := range map[string]string{"task=.a.one": "acme", "task=acme.a.one": "acme", "task=acme.a.one&task=acme.a.two": "all"} {
		status, line := get(token, query)
		require.Equal(t, 200, status, query)
		require.Contains(t, line, `"line":"of acme.a.one"`, query)
	}
	_, line := get("all", "task=.a.one")
	require.Contains(t, line, `"task":"default.a.one"`)
	for _, query := range []string{"task=default.a.one", "task=acme.a.one&task=default.a.one", "task=default.a.one:1"} {
		status, text := get("acme", query)
		require.Equal(t, 404, status, query)
		require.NotContains(t, text, "of default")
	}
	for _, query := range []string{"task=*.a.one", "task=acme.*.one", "task=acme.a.>"} {
		status, _ := get("acme", query)
		require.Equal(t, 422, status, query)
	}
}

// Whoever says that it works for a queue is listed with it, and what waits there.
func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	nc, err := nats.Connect(r.nats)
	require.NoError(t, err)
	defer nc.Close()
	type list struct {
		Items []struct {
			Queue, Pool string
			Workers     []struct {
				Name    string
				Running int
			}
		}
	}
	of := func(queue string) (names []string, pool string) {
		res, body := r.do("GET", "/v1/workers", "")
		var all list
		if res.StatusCode != http.StatusOK || json.Unmarshal([]byte(body), &all) != nil {
			return nil, ""
		}
		for _, it := range all.Items {
			if it.Queue == queue {
				for _, w := range it.Workers {
					names = append(names, w.Name+" "+strconv.Itoa(w.Running))
				}
				return names, it.Pool
			}
		}
		return nil, ""
	}
	r.ok("POST", "/v1/queues/pool-gpu/configure", `{"limit":2}`)
	says := map[string]string{
		"instar.worker.a-provider": `{"id":"1","queue":"a-provider","name":"two"}`,
		"instar.worker.y":          `{"id":"1","name":"without a queue"}`, "instar.worker.z": `{`,
		"instar.worker.fx-task-run=gpu": `{"id":"1","queue":"fx-task-run=gpu","name":"one","concurrency":8,"running":3}`,
	}
	require.Eventually(t, func() bool { // a word lives for a minute
		for subject, text := range says {
			_ = nc.Publish(subject, []byte(text))
		}
		names, pool := of("fx-task-run=gpu")
		others, _ := of("a-provider")
		return pool == "gpu" && slices.Equal(names, []string{"one 3"}) && slices.Equal(others, []string{"two 0"})
	}, time.Minute, 50*time.Millisecond)
	names, _ := of("")
	require.Empty(t, names)
}
