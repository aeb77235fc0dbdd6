package pg

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/internal/wait"
)

// settings are those that texts and hashes of values depend on, the isolation that every statement outside of an explicit transaction has, and
// that a commit waits for the log: a fence that a crash of its server takes down would let writers in unseen. A server ends what a node holds that it has not reached for half a minute: locks of shared tables among it.
var settings = map[string]string{
	"timezone": "UTC", "lc_monetary": "C", "datestyle": "ISO, YMD", "intervalstyle": "postgres", "extra_float_digits": "1", "bytea_output": "hex",
	"client_encoding": "UTF8", "default_transaction_isolation": "read committed", "default_transaction_read_only": "off", "synchronous_commit": "on",
	"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0", "row_security": "off", "search_path": "pg_catalog",
	"tcp_keepalives_idle": "15", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3", "tcp_user_timeout": "30000", // of a Unix socket they are none
}

// Address is where a server is and as whom it is entered.
type Address struct {
	DSN      string
	Database string // instead of the one in the DSN, when set
	Name     string // application_name: who it is for
	Replica  bool   // no trigger and no foreign key fires, but those that always do
	Kept     *Kept  // where its connections stay between two uses; each is a new one when nil
}

// Connect opens a connection, or takes one that is kept. What is set in it for longer than a transaction is found by the next who takes it.
func Connect(ctx context.Context, a Address) (*pgx.Conn, error) {
	if a.Kept == nil {
		return dial(ctx, a)
	}
	conn := a.Kept.take(ctx, a)
	if conn == nil {
		var err error
		if conn, err = dial(ctx, a); err != nil {
			return nil, err
		}
		conn.PgConn().CustomData()[dialed] = time.Now()
	}
	conn.PgConn().CustomData()[origin] = a
	return conn, nil
}

func dial(ctx context.Context, a Address) (*pgx.Conn, error) {
	config, err := Parse(a)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to database %s: %w", config.Database, err)
	}
	if !a.Replica {
		return conn, nil
	}
	if _, err := conn.Exec(ctx, `set session_replication_role = replica`); err != nil {
		end(conn)
		return nil, fmt.Errorf("the role needs GRANT SET ON PARAMETER session_replication_role: %w", err)
	}
	return conn, nil
}

// Parse is the configuration of a connection.
func Parse(a Address) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(a.DSN)
	if err != nil { // the error repeats the DSN without its password; the message need not have the rest
		return nil, Refuse("the address of the server cannot be read")
	}
	if a.Database != "" {
		config.Database = a.Database
	}
	for k, v := range settings {
		config.RuntimeParams[k] = v
	}
	if a.Name != "" {
		config.RuntimeParams["application_name"] = clip(a.Name, 63)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	return config, nil
}

// Host is the host and port of an address, as an application is told it.
func Host(a Address) (string, error) {
	config, err := Parse(a)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
}

// Close gives a connection back to where it is kept, or ends it, without waiting long: its context may be over already.
func Close(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	if a, kept := conn.PgConn().CustomData()[origin].(Address); kept && a.Kept.give(a, conn) {
		return
	}
	end(conn)
}

func end(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the server notices the end by itself
}

// Ident quotes a name, or several with dots between them.
func Ident(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// Literal quotes a text. It is for statements that take no parameters, such as COPY.
func Literal(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(q, `\`) {
		q = " E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}

var enterprise = regexp.MustCompile(`^[A-Za-z0-9-]{1,56}$`)

// DatabaseName is the name of a tenant's database.
func DatabaseName(enterpriseID string) (string, error) {
	if !enterprise.MatchString(enterpriseID) {
		return "", Refuse("the enterprise id %q is not made of 1 to 56 letters, digits and dashes", clip(enterpriseID, 80))
	}
	return "tenant_" + strings.ReplaceAll(enterpriseID, "-", "_"), nil
}

// AttemptName is what the connections of an attempt of a session are called, see [Label].
func AttemptName(fence uint64, session string) string {
	return fmt.Sprintf("instar %d %s", fence, Label(session))
}

// Label is a session in the names of connections, which Postgres cuts at 63 bytes: two of them stay two.
func Label(session string) string {
	const most = 44 // with twelve digits of an attempt before it
	if len(session) <= most {
		return session
	}
	sum := sha256.Sum256([]byte(session))
	return clip(session, most-17) + "~" + hex.EncodeToString(sum[:8])
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Brief has the server end the transaction where nothing is asked in it for longer than that: a process that is frozen keeps others waiting no longer for what it holds.
func Brief(ctx context.Context, tx pgx.Tx, most time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`set local idle_in_transaction_session_timeout = %d`, most.Milliseconds()))
	return err
}

// Alone waits for other transactions of this lock, and keeps it until the end of this one. What they have made meanwhile is seen then, also by CREATE IF NOT EXISTS: a connection that has looked
// for a schema before believes that there is none until it locks a table, which an advisory lock is not (LockRelationOid in Postgres's lmgr.c).
func Alone(ctx context.Context, tx pgx.Tx, lock string) error {
	if err := Brief(ctx, tx, 5*time.Second); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 0))`, lock); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `select from pg_catalog.pg_namespace limit 0`)
	return err
}

// ForAMoment has the statements after it wait a second at most for what others have locked: who waits for a strong lock of a table keeps all from it that come later, also those who only read.
const ForAMoment = `set local lock_timeout = '1s'; `

// Patiently does something in a transaction, again and again while it fails because others have a lock ([ForAMoment]). Between two tries those who have queued pass, each time for longer.
func Patiently(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	for try := 2; ; try++ {
		err := pgx.BeginFunc(ctx, conn, do)
		if state := State(err); state != LockTimeout && state != "40P01" || !wait.Backoff(ctx, try) {
			return err
		}
	}
}
