package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/client/worker"
)

// Backup is the data of the effect copy of the machine in docs/adding-a-machine.md, and Taken its result.
type (
	Backup struct {
		Directory string `json:"directory"`
	}
	Taken struct {
		File  string `json:"file"`
		Bytes int64  `json:"bytes"`
	}
)

// A worker of the effect copy, which ends with Ctrl-C, after what it has begun.
func ExampleHandle() {
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.MaxReconnects(-1))
	if err != nil {
		fmt.Println("there is no server:", err)
		return
	}
	defer nc.Close()
	w, err := worker.New(worker.Options{NC: nc, Concurrency: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker.Handle(w, worker.Effect{Machine: "backup", Name: "copy", Done: "copied"}, func(ctx context.Context, t worker.Task[Backup]) (Taken, error) {
		info, err := os.Stat(t.Data.Directory)
		if errors.Is(err, os.ErrNotExist) {
			return Taken{}, worker.Terminal(err)
		}
		if err != nil {
			return Taken{}, worker.RetryAfter(time.Minute, err)
		}
		return Taken{File: "/backups/" + t.Key(), Bytes: info.Size()}, ctx.Err()
	})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	fmt.Println(w.Run(ctx))
}

// What a handler returns as an error decides whether the task is tried again.
func ExampleTerminal() {
	fmt.Println(worker.Terminal(errors.New("no such directory")))
	fmt.Println(worker.RetryAfter(time.Minute, errors.New("the disk is full")))
	fmt.Println(&worker.Failure{Code: "quota", Message: "come back tomorrow", Retryable: true, RetryAfter: 24 * time.Hour})
	// Output:
	// failed: no such directory
	// failed: the disk is full
	// quota: come back tomorrow
}
