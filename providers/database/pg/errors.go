package pg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// RefusedError is what the same call can never do: its message says what to change.
type RefusedError struct{ Message string }

func (e *RefusedError) Error() string { return e.Message }

// Refuse makes a [RefusedError].
func Refuse(format string, args ...any) error {
	return &RefusedError{Message: fmt.Sprintf(format, args...)}
}

// ObsoleteError is the answer to an attempt after a newer one was seen.
type ObsoleteError struct{ Fence, Seen uint64 }

func (e *ObsoleteError) Error() string {
	return fmt.Sprintf("attempt %d is obsolete: attempt %d has taken over", e.Fence, e.Seen)
}

// LaterError is what may work later, by the word of this code and not of Postgres.
type LaterError struct {
	Message string
	After   time.Duration
}

func (e *LaterError) Error() string { return e.Message }

// Later makes a [LaterError].
func Later(after time.Duration, format string, args ...any) error {
	return &LaterError{Message: fmt.Sprintf(format, args...), After: after}
}

// AnotherRun is the [LaterError] of a run of a comparison beside which a later one has begun.
func AnotherRun() error { return Later(time.Second, "another run of the comparison has begun") }

// SQLSTATEs that are told apart.
const (
	DiskFull        = "53100"
	TooMany         = "53300"
	InUse           = "55006"
	LockTimeout     = "55P03"
	UniqueViolation = "23505"
	Duplicate       = "42P04" // database
	DuplicateObject = "42710"
	UndefinedObject = "42704"
	UnknownFunction = "42883"
	NoDatabase      = "3D000"
	Closed          = "55000" // a database that takes no connections, as in quarantine
	Forbidden       = "42501"
	ReadOnly        = "25006" // what the fence says
	Serialization   = "40001"

	IdleInTransaction = "25P03" // for longer than a transaction may be
)

// State is the SQLSTATE of an error, or empty.
func State(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// HeldError is a tenant that another session has. Repeating it does not help until that one has ended.
type HeldError struct{ Enterprise, Session, Asks string }

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has the tenant %s", Another(e.Session, e.Asks), e.Enterprise)
}

// Another is a session as one is told of it that asks: not by its name where that is of another namespace, of which nobody is to learn.
func Another(session, asks string) string {
	if namespace(session) != namespace(asks) {
		return "another session"
	}
	return "session " + session
}

// namespace is that of a session, which may have its machine before its key.
func namespace(session string) string {
	first, _, named := strings.Cut(session[strings.LastIndexByte(session, '/')+1:], ".")
	if !named {
		return ""
	}
	return first
}

// NotSetUp reports whether what this program keeps in a database is not there: no table, or no schema.
func NotSetUp(err error) bool { return State(err) == "42P01" || State(err) == "3F000" }

// Transient reports whether the same call may work later, and the least wait before it.
func Transient(err error) (bool, time.Duration) {
	var refused *RefusedError
	var later *LaterError
	var obsolete *ObsoleteError
	switch {
	case err == nil, errors.As(err, &refused):
		return false, 0
	case errors.As(err, &obsolete):
		return true, 0 // the next attempt comes with a higher fence
	case errors.As(err, &later):
		return true, later.After
	}
	if state := State(err); state != "" {
		return transientState(state)
	}
	return lost(err), 0
}

// lost reports whether a connection, or the time, has ended.
func lost(err error) bool {
	var dial *pgconn.ConnectError
	var network net.Error
	return errors.As(err, &dial) || errors.As(err, &network) || pgconn.Timeout(err) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || // of database/sql, which migrations go through
		strings.Contains(err.Error(), "conn closed") // pgx has no type for it
}

// transientState judges by the class of a SQLSTATE: connections (08), rollbacks (40), resources (53), operators (57), the system (58).
func transientState(state string) (bool, time.Duration) {
	switch state {
	case DiskFull:
		return true, 30 * time.Second
	case TooMany, InUse, LockTimeout, IdleInTransaction:
		return true, time.Second
	case "57P03": // it starts
		return true, time.Second
	case "57014": // a statement was cancelled
		return true, 0
	}
	switch state[:2] {
	case "08", "40", "53", "57", "58":
		return true, 0
	}
	return false, 0
}

// quoted is a literal of SQL, or a value in a connection's parameters.
const quoted = `'(?:[^'\\]|''|\\.)*'`

// What errors say of how one gets in: names of users and databases, whole addresses, passwords. A password stands behind a sign, or in quotes: what is called so without, is a table or a column.
var (
	attempt   = regexp.MustCompile("failed to connect to `[^`]*`:?")
	address   = regexp.MustCompile(`postgres(ql)?://[^\s)'"]+`)
	password  = regexp.MustCompile(`(?is)password(?:\w*\s*=\s*(?:` + quoted + `|\S+)|\w*"\s*:\s*"[^"]*|\s+e?(?:` + quoted + `|'\S*))`)
	scram     = regexp.MustCompile(`SCRAM-SHA-256\$[^\s']+`)
	connector = regexp.MustCompile(`(?is)connection\s+` + quoted)
)

// Discreet leaves credentials and addresses out of a text.
func Discreet(text string) string {
	text = address.ReplaceAllString(attempt.ReplaceAllString(text, "cannot connect:"), "the database")
	text = connector.ReplaceAllString(scram.ReplaceAllString(text, "***"), "connection '***'")
	return password.ReplaceAllString(text, "password ***")
}
