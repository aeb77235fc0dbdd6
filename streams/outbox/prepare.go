package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrPooler says that a connection pooler (PgBouncer or alike) answers where a session of Postgres is needed.
var ErrPooler = errors.New("outbox: this is the address of a connection pooler; relays, init and the commands for operators need sessions of their own, so give them the address of Postgres itself (applications may append through the pooler, in transaction mode too)")

// beginning is what a session of the outbox begins with, whatever the database or the role has by default.
//
// The compiler of expressions is off: it takes half a second for a claim, which takes one millisecond. Scans of whole
// tables and bitmaps are the last resort: what is wanted is always a few rows in the order of an index, and the planner
// does not know how long a new day is. The fence, and the change of a mode, rely on statements that see what was committed
// before they began.
var beginning = map[string]string{
	"jit": "off", "enable_bitmapscan": "off", "enable_seqscan": "off",
	"default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "default_transaction_deferrable": "off",
}

// Prepare sets connections up for an outbox in that schema (public when empty). Names without a schema mean those of the
// outbox; temporary tables come last, so that they hide none. Commits wait at least for the disk of the server: what a relay
// has written down is not undone by a crash, when the stream builds on it. Timeouts that a role or a database has by default are off:
// what is done has limits of its own. A connection through a pooler, which keeps
// none of this, fails with [ErrPooler].
func Prepare(config *pgx.ConnConfig, schema string) error {
	if schema == "" {
		schema = "public"
	}
	if !schemaName.MatchString(schema) {
		return fmt.Errorf("outbox: %q is no name of a schema: letters, digits and _", schema)
	}
	maps.Copy(config.RuntimeParams, beginning)
	config.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize() + ", pg_temp"
	session := uuid.NewString()
	config.RuntimeParams["instar.session"] = session // a pooler that hides what it does not pass on is known by it
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		results, err := conn.Exec(ctx, sqlBegin).ReadAll()
		if err != nil {
			return err
		}
		if last := results[len(results)-1]; string(last.Rows[0][0]) != session {
			return ErrPooler
		}
		return nil
	}
	return nil
}

const sqlBegin = `
	select set_config('synchronous_commit', 'local', false) where current_setting('synchronous_commit') = 'off';
	select set_config(t, '0', false) from unnest(array['statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout']) as t
		where current_setting(t, true) <> '0';
	select current_setting('instar.session', true)`

// Pooled is [ErrPooler] where an error of a connection says that a pooler refused what a session begins with; every other
// error is returned as it is.
func Pooled(err error) error {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "08P01" && strings.HasPrefix(refused.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w: %s", ErrPooler, refused.Message)
	}
	return err
}
