package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/internal/postgres"
)

// riverJobs is River on a Postgres of its own.
type riverJobs struct {
	cluster *postgres.Cluster
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
	worker  *rig.Process
}

func quiet(to io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelError}))
}

// riverOn starts Postgres with the defaults of its packages but for synchronous_commit, and a worker with those of River.
func (o *options) riverOn(ctx context.Context, synchronous string) (contender, error) {
	dir, err := os.MkdirTemp(o.dir, "postgres")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	r := &riverJobs{}
	r.cluster, err = postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "pg"), Config: map[string]string{"synchronous_commit": synchronous, "max_wal_size": "4GB"}})
	if err != nil {
		return nil, err
	}
	dsn, err := r.cluster.Database(ctx)
	if err != nil {
		return r, err
	}
	if r.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return r, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: quiet(os.Stderr)})
	if err != nil {
		return r, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return r, err
	}
	if r.client, err = river.NewClient(riverpgxv5.New(r.pool), &river.Config{Logger: quiet(os.Stderr)}); err != nil {
		return r, err
	}
	r.worker, err = startWorker(dsn, o.riverWorkers)
	return r, err
}

// startWorker starts this program as a worker, which does so many jobs at a time.
func startWorker(url string, workers int) (*rig.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return rig.Start(&lockedbuffer.Buffer{}, nil, self, "-work", url, "-workers", fmt.Sprint(workers))
}

func (r *riverJobs) enqueue(ctx context.Context, _, n int, at time.Time) error {
	if n == 1 {
		_, err := r.client.Insert(ctx, args{At: at}, nil)
		return err
	}
	for n > 0 {
		list := make([]river.InsertManyParams, min(n, 1000))
		for i := range list {
			list[i].Args = args{At: at}
		}
		if _, err := r.client.InsertManyFast(ctx, list); err != nil {
			return err
		}
		n -= len(list)
	}
	return nil
}

func (r *riverJobs) done(ctx context.Context) (n int, err error) {
	err = r.pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&n)
	return n, err
}

func (r *riverJobs) check(ctx context.Context, jobs int) error {
	var all, once int
	if err := r.pool.QueryRow(ctx, "select count(*), count(*) filter (where state = 'completed' and attempt = 1) from river_job").Scan(&all, &once); err != nil {
		return err
	}
	if all != jobs || once != jobs {
		return fmt.Errorf("of %d jobs %d are there, and %d were done once", jobs, all, once)
	}
	return nil
}

func (r *riverJobs) processes() (server, worker *rig.Process) { return nil, r.worker }
func (r *riverJobs) database() int                            { return r.cluster.PID() }

func (r *riverJobs) close() {
	if r.worker != nil {
		r.worker.Kill()
	}
	if r.pool != nil {
		r.pool.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.cluster.Stop(ctx); err != nil {
		fmt.Println("Postgres does not stop:", err)
	}
}
