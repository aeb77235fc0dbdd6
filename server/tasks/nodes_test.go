package tasks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

// hands are a node that holds each of its tasks until it is let go.
type hands struct {
	node  string
	began chan<- string
	end   <-chan struct{}
}

func (h hands) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect == task.EffectErase {
		return machines.Result{Data: task.Erased{}}
	}
	h.began <- h.node
	select {
	case <-h.end:
	case <-ctx.Done():
	}
	return machines.Result{Data: task.Result{Worker: h.node}}
}

// All nodes do tasks, each as many at a time as it may. No more are started than they do together: one that waits for a node would use up its timeout.
func TestAllNodesDoTasks(t *testing.T) {
	t.Parallel()
	const each, many = 2, 7
	began, end := make(chan string, 2*many), make(chan struct{})
	node := func(name string) performs {
		return func(context.Context, *server.Host) (effects.Performer, error) { return hands{name, began, end}, nil }
	}
	bound := func(c *config.Config) { c.Tasks.Concurrency = each }
	one := start(t, node("one"), bound)
	start(t, node("two"), bound, func(c *config.Config) { c.NATS.URL, c.NATS.Listen = one.nats, "" })
	one.ok("POST", "/v1/queues/cluster/configure", `{"limit":64}`)
	one.ok("POST", "/v1/repositories/a/create", `{"concurrency":64}`)
	for i := range many {
		one.ok("POST", fmt.Sprintf("/v1/repositories/a/tasks/t%d/create", i), fmt.Sprintf(`{"type":"any","sortOrder":%d,"run":true}`, i))
	}
	does := map[string]int{}
	for range 2 * each {
		select {
		case name := <-began:
			does[name]++
		case <-time.After(time.Minute):
			require.FailNow(t, "tasks wait while a node has nothing to do", "%v", does)
		}
	}
	require.Equal(t, map[string]int{"one": each, "two": each}, does)
	require.Eventually(t, func() bool { return one.why("t6")["why"] == "queue of the nodes runs 4 of 4" }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{"task.created", "task.queued"}, one.events("/v1/repositories/a/tasks/t6"))
	close(end)
	for i := range many {
		one.comes(fmt.Sprintf("/v1/repositories/a/tasks/t%d", i), "succeeded")
	}
}

// A task that is canceled, or reset by force, ends with what it has started: the program, and whatever that runs.
func TestTheProgramOfATaskThatIsNotWantedEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "sleeps")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nsleep 600 &\necho $$ $! > \"$1.new\" && mv \"$1.new\" \"$1\"\nwait\n"), 0o700))
	r := start(t, tasks.Runner, func(c *config.Config) {
		c.Tasks.Programs = map[string]config.Program{"sleeps": {Path: program, Arguments: true}}
	})
	r.ok("POST", "/v1/repositories/a/create", `{"concurrency":2}`)
	for _, command := range []string{"cancel", "force-reset"} {
		pids := filepath.Join(dir, command)
		r.ok("POST", "/v1/repositories/a/tasks/"+command+"/create", `{"type":"exec","params":{"program":"sleeps","args":["`+pids+`"]},"run":true}`)
		var running []int
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(pids)
			for _, word := range strings.Fields(string(text)) {
				pid, err := strconv.Atoi(word)
				require.NoError(t, err)
				running = append(running, pid)
			}
			return err == nil
		}, time.Minute, 20*time.Millisecond, "it runs")
		require.Len(t, running, 2)
		for _, pid := range running {
			require.NoError(t, syscall.Kill(pid, 0))
		}
		r.ok("POST", "/v1/repositories/a/tasks/"+command+"/"+command, "")
		for _, pid := range running {
			require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, time.Minute, 20*time.Millisecond, "process %d ends", pid)
		}
	}
}
