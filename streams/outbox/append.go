package outbox

// From messages of an application to rows of the outbox. Append and AppendSQL check the messages and fill in ids and defaults (columns), and pass them to the SQL functions
// outbox_append_bytes or outbox_append_batch in the transaction of the application; these write to the table of the mode, or refuse when the relay lags. A relay reads the rows
// when the transaction has committed.

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Appender appends messages in the transactions of an application. The zero value is for an outbox in the schema public
// and knows all types of events. It may be used by several goroutines at a time.
type Appender struct {
	Schema     string     // public
	Types      *Types     // which events there are; nil knows all
	Serializer Serializer // of domain events; JSON
	MaxLag     int64      // refuse with ErrLagging when a relay is more rows behind; 0 leaves it to outbox_settings, which has no limit by default
}

// ErrLagging says that the relay is too far behind, so that nothing was appended. The transaction has failed.
var ErrLagging = errors.New("outbox: the relay is too far behind, try again later")

// lagging is the code of the error that outbox_append_batch raises then.
const lagging = "OB001"

// Append appends messages in a transaction, in one round trip, in this order, and returns their ids. They are published
// after the transaction has committed, or not at all. What is not a message is refused before the database is asked;
// after any other error the transaction has failed. An id is made (UUIDv7, rising) and the time taken from the database where
// a message has none. An id can be appended once: in the mode claim, and in the mode log within a day (UTC).
func (a *Appender) Append(ctx context.Context, tx pgx.Tx, msgs ...Message) ([]uuid.UUID, error) {
	c, err := a.columns(msgs)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	if len(msgs) == 1 { // the usual case, at half the price
		var query string
		if query, err = a.query(appendOne); err == nil {
			_, err = tx.Exec(ctx, query, c.types[0], c.aggregates[0], c.events[0], c.payloads[0], c.contents[0], c.headers[0], c.ids[0], c.occurred[0], c.notBefore[0], a.MaxLag)
		}
		return c.ids, refused(err)
	}
	query, err := a.query(appendMany)
	if err != nil {
		return nil, err
	}
	args := []any{c.ids, c.occurred, c.types, c.aggregates, c.events, c.payloads, c.contents, c.headers, c.notBefore, a.MaxLag}
	if mode := execMode(tx); mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol { // the driver does not ask for the types
		args = c.text(a.MaxLag)
	}
	_, err = tx.Exec(ctx, query, args...)
	return c.ids, refused(err)
}

// execMode is how the driver runs statements: behind a pooler in transaction mode it must not prepare them.
func execMode(tx pgx.Tx) pgx.QueryExecMode {
	if conn := tx.Conn(); conn != nil {
		return conn.Config().DefaultQueryExecMode
	}
	return pgx.QueryExecModeCacheStatement
}

const (
	appendOne  = `outbox_append_bytes($1::text, $2::text, $3::text, $4::bytea, $5::text, $6::jsonb, $7::uuid, $8::timestamptz, $9::timestamptz, $10::bigint)`
	appendMany = `outbox_append_batch($1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::jsonb[], $9::timestamptz[], $10::bigint)`
)

// AppendSQL is [Appender.Append] for database/sql, with any driver that speaks Postgres's text format.
func (a *Appender) AppendSQL(ctx context.Context, tx *sql.Tx, msgs ...Message) ([]uuid.UUID, error) {
	c, err := a.columns(msgs)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	query, err := a.query(appendMany)
	if err != nil {
		return nil, err
	}
	_, err = tx.ExecContext(ctx, query, c.text(a.MaxLag)...)
	return c.ids, refused(err)
}

// text is everything as arguments of outbox_append_batch, for a driver without arrays.
func (c *columns) text(maxLag int64) []any {
	stamp := func(t *time.Time) *string {
		if t == nil {
			return nil
		}
		s := t.UTC().Format(time.RFC3339Nano)
		return &s
	}
	text := func(s string) *string { return &s }
	return []any{
		array(c.ids, func(id uuid.UUID) *string { return text(id.String()) }), array(c.occurred, stamp),
		array(c.types, text), array(c.aggregates, text), array(c.events, text),
		array(c.payloads, func(p []byte) *string { return text(`\x` + hex.EncodeToString(p)) }),
		array(c.contents, text), array(c.headers, text), array(c.notBefore, stamp), maxLag,
	}
}

func (a *Appender) query(call string) (string, error) {
	schema := a.Schema
	if schema == "" {
		schema = "public"
	}
	if !schemaName.MatchString(schema) {
		return "", fmt.Errorf("outbox: %q is no name of a schema: letters, digits and _", schema)
	}
	return "select " + pgx.Identifier{schema}.Sanitize() + "." + call, nil
}

// columns are messages as the arrays that outbox_append_batch takes.
type columns struct {
	ids                       []uuid.UUID
	types, aggregates, events []string
	contents, headers         []string
	payloads                  [][]byte
	occurred, notBefore       []*time.Time
}

func (a *Appender) columns(msgs []Message) (*columns, error) {
	c := &columns{}
	for i := range msgs {
		m := msgs[i] // defaults are filled into a copy
		if m.ID == uuid.Nil {
			id, err := m.newID()
			if err != nil {
				return nil, fmt.Errorf("outbox: cannot make an id: %w", err)
			}
			m.ID = id
		}
		if m.ContentType == "" {
			m.ContentType = "application/json"
		}
		if err := m.Check(); err != nil {
			return nil, fmt.Errorf("outbox: message %d: %w", i, err)
		}
		if a.Types.of(m.EventType) == RefuseUnknown {
			return nil, fmt.Errorf("outbox: message %d: %w: %s is not among the types of this application", i, ErrUnknownType, m.EventType)
		}
		if err := c.add(&m); err != nil {
			return nil, fmt.Errorf("outbox: message %d: headers: %w", i, err)
		}
	}
	return c, nil
}

func (c *columns) add(m *Message) error {
	headers := []byte("{}")
	if len(m.Headers) > 0 {
		var err error
		if headers, err = json.Marshal(m.Headers); err != nil {
			return err
		}
	}
	payload := m.Payload
	if payload == nil {
		payload = []byte{} // null is refused, empty is a payload
	}
	c.ids, c.types, c.aggregates, c.events = append(c.ids, m.ID), append(c.types, m.AggregateType), append(c.aggregates, m.AggregateID), append(c.events, m.EventType)
	c.payloads, c.contents, c.headers = append(c.payloads, payload), append(c.contents, m.ContentType), append(c.headers, string(headers))
	c.occurred, c.notBefore = append(c.occurred, known(m.OccurredAt)), append(c.notBefore, known(m.NotBefore))
	return nil
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// array writes an array as Postgres reads it.
func array[T any](all []T, text func(T) *string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, v := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		s := text(v)
		if s == nil {
			b.WriteString("NULL")
			continue
		}
		b.WriteByte('"')
		_, _ = quoting.WriteString(&b, *s) // a builder does not fail
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// refused distinguishes the limit from other errors.
func refused(err error) error {
	var state interface{ SQLState() string }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &state) && state.SQLState() == lagging:
		return fmt.Errorf("%w: %w", ErrLagging, err)
	}
	return fmt.Errorf("outbox: cannot append: %w", err)
}
