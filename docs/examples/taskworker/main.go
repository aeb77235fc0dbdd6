// Command taskworker is the example of a worker of tasks in Go: it takes the tasks of the pool greeters, which are of the type greet, and ends with Ctrl-C, after
// what it has begun: go run . [nats://127.0.0.1:4222]. The same in JavaScript is worker.mjs.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/client/worker"
)

// Run is what a worker needs of the data of the effect run, and Result what it answers; machines/task has all fields.
type (
	Run struct {
		Type   string `json:"type"`
		Params struct {
			Name    string `json:"name"`
			Seconds int    `json:"seconds"` // that it takes
		} `json:"params"`
	}
	Result struct {
		Worker  string `json:"worker"`
		Summary string `json:"summary"`
	}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := nats.DefaultURL
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(ctx, url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := worker.New(worker.Options{NC: nc, Name: "go"})
	if err != nil {
		return err
	}
	worker.Handle(w, worker.Effect{Machine: "task", Name: "run", Done: "done", Route: "greeters"}, greet)
	return w.Run(ctx)
}

func greet(ctx context.Context, t worker.Task[Run]) (Result, error) {
	if t.Data.Type != "greet" {
		return Result{}, worker.Terminal(fmt.Errorf("no task of type %q is done here", t.Data.Type))
	}
	select {
	case <-time.After(time.Duration(t.Data.Params.Seconds) * time.Second):
	case <-ctx.Done(): // it was canceled, or the worker stops
		return Result{}, context.Cause(ctx)
	}
	return Result{Worker: "go", Summary: "hello " + t.Data.Params.Name}, nil
}
