package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/client/worker"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/task"
)

const (
	workerVerb = "task-worker" // the first argument with which this program is a worker
	pool       = "elsewhere"
	holder     = "holder" // the name of the worker that never ends a task of the type hold
)

// Work does the tasks of a pool when this process was started to do so, and reports whether it was. It ends when it is killed.
func Work(args []string) bool {
	if len(args) != 3 || args[0] != workerVerb {
		return false
	}
	if err := work(args[1], args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

func work(url, name string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Options{NC: nc, Name: name, Concurrency: 4, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	worker.Handle(w, worker.Effect{Machine: task.Machine.Name, Name: task.EffectRun, Done: task.ReportDone, Route: pool}, func(ctx context.Context, t worker.Task[task.Run]) (task.Result, error) {
		for wait.For(ctx, 50*time.Millisecond) && t.Data.Type == "hold" && name == holder {
		}
		return task.Result{Worker: name}, ctx.Err()
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.Run(ctx)
}
