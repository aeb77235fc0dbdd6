package tenantdb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/providers/database/secret"
)

// An application follows its tenants: each transaction is done where the tenant's data is, and again elsewhere when the tenant is just moved.
func Example() {
	if err := serve(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func serve(ctx context.Context) error {
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.UserInfo("app", os.Getenv("NATS_PASSWORD"))) // a user of the role resolve
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.NewWithAPIPrefix(nc, "$JS.INSTAR.API")
	if err != nil {
		return err
	}
	set, err := os.ReadFile("/etc/instar/tenant-keys.json") // that of the server's tenants.keys
	if err != nil {
		return err
	}
	keys, err := secret.Open(set)
	if err != nil {
		return err
	}
	shared, err := pgxpool.ParseConfig("postgres://app@db.internal/shared")
	if err != nil {
		return err
	}
	db, err := tenantdb.Open(ctx, tenantdb.Options{JetStream: js, Keys: keys, Shared: shared})
	if err != nil {
		return err
	}
	return errors.Join(rename(ctx, db, "acme", 7, "Ada"), db.Close())
}

// patience is how long a request waits for a tenant that is being moved. A revert compares all rows, which may take longer: then its user is told.
const patience = 30 * time.Second

// moving are what a tenant is refused with that is being moved, or sent back. A role that may never log in gets 28000 as well.
var moving = []string{"25006", "40001", "57P01", "28000", "3D000", "55000"}

func rename(ctx context.Context, db *tenantdb.DB, tenant string, user int64, name string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := within(ctx, db, tenant, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `update users set name = $3 where enterprise_id = $1 and id = $2`, tenant, user, name)
			return err
		})
		var refused *pgconn.PgError
		if errors.As(err, &refused) && slices.Contains(moving, refused.Code) && ctx.Err() == nil {
			select { // the next connection leads to its own database as soon as that has its rows, or back
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		return err
	}
}

func within(ctx context.Context, db *tenantdb.DB, tenant string, do func(pgx.Tx) error) error {
	conn, err := db.Acquire(ctx, tenant)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, do)
}
