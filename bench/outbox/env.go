package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/embedded"
)

// event is one row of all contenders.
type event struct {
	id        uuid.UUID
	aggregate string
	payload   []byte
}

// env is one Postgres and one NATS server of a durability.
type env struct {
	dir     string
	cluster *postgres.Cluster
	dsn     string
	server  *embedded.Server
	url     string
	nc      *nats.Conn
	js      jetstream.JetStream
	profile embedded.Profile
}

// open starts both; Postgres has the defaults of its packages, fsync included.
func open(ctx context.Context, profile embedded.Profile) (*env, error) {
	dir, err := os.MkdirTemp("", "instar-bench-outbox-")
	if err != nil {
		return nil, err
	}
	e := &env{dir: dir, profile: profile}
	if err := os.Chmod(dir, 0o711); err != nil { // Postgres may run as another user
		return nil, err
	}
	e.cluster, err = postgres.Start(ctx, postgres.Options{Dir: filepath.Join(dir, "postgres"), Config: map[string]string{"max_wal_size": "4GB"}})
	if err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	e.server, err = embedded.Start(embedded.Options{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Open: true, Profile: profile})
	if err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	e.url = e.server.ClientURL()
	if e.nc, err = nats.Connect(e.url); err != nil {
		return nil, errors.Join(err, e.close(ctx))
	}
	e.js, err = jetstream.New(e.nc)
	return e, err
}

// fresh makes a database of its own for a round, so that no round inherits dead rows.
func (e *env) fresh(ctx context.Context) (err error) {
	e.dsn, err = e.cluster.Database(ctx)
	return err
}

func (e *env) close(ctx context.Context) error {
	var err error
	if e.nc != nil {
		e.nc.Close()
	}
	if e.server != nil {
		err = errors.Join(err, e.server.Shutdown(ctx))
	}
	if e.cluster != nil {
		err = errors.Join(err, e.cluster.Stop(ctx))
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

// tx runs a transaction of the application.
func (e *env) tx(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, conn, do)
}

// stored waits until the stream has that many events. A look costs CPU that counts for the contender, so there are few: the
// next one is when half of what is left should be there.
func (e *env) stored(ctx context.Context, stream, markers string, want uint64) error {
	began := time.Now()
	for {
		n, err := e.count(ctx, stream, markers, want)
		if err == nil && n >= want {
			return nil
		}
		pause := 5 * time.Millisecond
		if err == nil && n > 0 {
			left := time.Duration(float64(time.Since(began)) * float64(want-n) / float64(n))
			pause = max(pause, min(left/2, time.Since(began)/10)) // the first looks say little of the rate
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events are in %s: %w", n, want, stream, ctx.Err())
		}
	}
}

// count is how many messages a stream has; once there may be enough of them, without its markers.
func (e *env) count(ctx context.Context, stream, markers string, want uint64) (uint64, error) {
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	n := s.CachedInfo().State.Msgs
	if markers == "" || n < want {
		return n, nil
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(markers))
	if err != nil {
		return 0, err
	}
	for _, m := range info.State.Subjects {
		n -= min(m, n)
	}
	return n, nil
}

// rows are the same for all: an order event of 256 bytes, a thousand aggregates.
func rows(n int) []event {
	list := make([]event, n)
	for i := range list {
		list[i] = event{id: uuid.Must(uuid.NewV7()), aggregate: fmt.Sprintf("o-%d", i%1000)}
		list[i].payload = fmt.Appendf(nil, `{"order":%d,"amount":%d,"note":"%0196d"}`, i%1000, i, i)
	}
	return list
}
