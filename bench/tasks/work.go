package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/bcc94042/instar/client/worker"
)

// pool is that of the tasks, which no node does.
const pool = "bench"

// args are what a job is told: when it was enqueued, if its latency is measured.
type args struct {
	At time.Time `json:"at,omitzero"`
}

func (args) Kind() string { return "noop" }

func (a args) begun() {
	if !a.At.IsZero() {
		fmt.Printf("started after %d\n", time.Since(a.At).Microseconds())
	}
}

// workFor does the jobs of a server until ctx ends.
func workFor(ctx context.Context, url string, workers int) error {
	if strings.HasPrefix(url, "nats:") {
		return workInstar(ctx, url, workers)
	}
	return workRiver(ctx, url, workers)
}

func workInstar(ctx context.Context, url string, workers int) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	w, err := worker.New(worker.Options{NC: nc, Name: "bench", Concurrency: workers})
	if err != nil {
		return err
	}
	type run struct {
		Params args `json:"params"`
	}
	worker.Handle(w, worker.Effect{Machine: "task", Name: "run", Done: "done", Route: pool}, func(_ context.Context, t worker.Task[run]) (struct{}, error) {
		t.Data.Params.begun()
		return struct{}{}, nil
	})
	return w.Run(ctx)
}

type noop struct{ river.WorkerDefaults[args] }

func (noop) Work(_ context.Context, job *river.Job[args]) error {
	job.Args.begun()
	return nil
}

func workRiver(ctx context.Context, url string, workers int) error {
	p, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer p.Close()
	all := river.NewWorkers()
	river.AddWorker(all, noop{})
	c, err := river.NewClient(riverpgxv5.New(p), &river.Config{Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}}, Workers: all, Logger: quiet(os.Stderr)})
	if err != nil {
		return err
	}
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.Stop(ending)
}
