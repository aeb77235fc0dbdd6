package relays

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/wait"
	provider "github.com/bcc94042/instar/providers/relay"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams/outbox"
)

// privatePostgres is the cluster that dev runs for those who try the outbox.
type privatePostgres struct {
	h     *server.Host
	ready chan struct{} // closed when it runs, or will not

	cluster *postgres.Cluster // both are set before ready is closed
	err     error
}

var errStarting = fmt.Errorf("the private Postgres is being started: %w", provider.ErrNotYet)

// dsn is the address of its database, or why there is none.
func (p *privatePostgres) dsn() (string, error) {
	select {
	case <-p.ready:
	default:
		return "", errStarting
	}
	if p.err != nil {
		return "", p.err
	}
	return p.cluster.DSN(privateDatabase), nil
}

// privateDatabase is where applications that are tried out have their tables.
const privateDatabase = "app"

// run starts the cluster and stops it when ctx ends. That there is none keeps nothing else from working.
func (p *privatePostgres) run(ctx context.Context) error {
	p.err = p.start(ctx)
	close(p.ready)
	if ctx.Err() == nil {
		if p.err != nil {
			p.h.Log.Info("there is no private Postgres", "reason", p.err)
			p.h.Say("Outbox: %v", p.err)
		} else {
			p.h.Say("Outbox: psql \"$(cat %s)\" connects to a private Postgres with an outbox, which is relayed into the stream OUTBOX. To use your own: --outbox-dsn postgres://…", p.dsnFile())
		}
	}
	if p.cluster == nil {
		<-ctx.Done()
		return nil
	}
	p.keep(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	return p.cluster.Stop(stop)
}

// keep starts the server again when it ends, until ctx does.
func (p *privatePostgres) keep(ctx context.Context) {
	for {
		select {
		case <-p.cluster.Gone():
		case <-ctx.Done():
			return
		}
		p.h.Log.Warn("the private Postgres has ended; restarting it")
		for {
			err := p.cluster.Restart(ctx)
			if err == nil {
				break
			}
			p.h.Log.Warn("the private Postgres cannot be started again", "error", err)
			if !wait.For(ctx, 5*time.Second) {
				return
			}
		}
	}
}

func (p *privatePostgres) dir() string     { return filepath.Join(p.h.Config.Data, "postgres") }
func (p *privatePostgres) dsnFile() string { return filepath.Join(p.dir(), "dsn") }

func (p *privatePostgres) start(ctx context.Context) error {
	if os.Geteuid() == 0 { // Postgres runs as another user, who must get through to its directory
		// #nosec G302 -- what is below is closed
		if err := os.Chmod(p.h.Config.Data, 0o711); err != nil {
			return err
		}
	}
	cluster, err := postgres.Start(ctx, postgres.Options{Dir: p.dir(), Port: p.lastPort(), Config: map[string]string{"max_connections": "100"}})
	if errors.Is(err, postgres.ErrNoPostgres) {
		return fmt.Errorf("%w (--outbox-dsn postgres://…)", err)
	}
	if err != nil {
		return fmt.Errorf("there is no private Postgres (use another one with --outbox-dsn postgres://…): %w", err)
	}
	p.cluster = cluster
	if u, err := url.Parse(cluster.DSN("postgres")); err == nil {
		p.h.Listens(u.Host)
	}
	if err := p.database(ctx); err != nil {
		return fmt.Errorf("the private Postgres in %s cannot be used: %w", p.dir(), err)
	}
	if err := os.WriteFile(p.dsnFile(), []byte(cluster.DSN(privateDatabase)+"\n"), 0o600); err != nil {
		return fmt.Errorf("cannot write the address of the private Postgres: %w", err)
	}
	return nil
}

// database makes the database and its outbox.
func (p *privatePostgres) database(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.cluster.DSN("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is lost with it
	var there bool
	if err := conn.QueryRow(ctx, "select exists (select from pg_database where datname = $1)", privateDatabase).Scan(&there); err != nil {
		return err
	}
	if !there {
		if _, err := conn.Exec(ctx, "create database "+privateDatabase); err != nil {
			return err
		}
	}
	return outbox.Init(ctx, p.cluster.DSN(privateDatabase), "", outbox.Settings{})
}

// lastPort is the port of the last time when it is free, so that what was connected then connects again; else 0.
func (p *privatePostgres) lastPort() int {
	raw, err := os.ReadFile(p.dsnFile())
	if err != nil {
		return 0
	}
	u, err := url.Parse(string(raw[:max(len(raw)-1, 0)]))
	if err != nil {
		return 0
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", u.Port()))
	if err != nil {
		return 0
	}
	_ = l.Close() // it was never used
	port, _ := strconv.Atoi(u.Port())
	return port
}
