package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// hostile are texts that would end a literal, a name or a statement, or mean something to whoever builds one out of texts.
var hostile = []string{
	`'; drop table outbox_log; --`, `"; drop schema public cascade; --`, `x"; select pg_sleep(9); --`, `$$; drop table outbox_log; $$`, `\'; drop table outbox_log; --`, `' or '1'='1`, `1; copy (select 1) to program 'id'`,
	`public, pg_catalog`, `public" cascade`, `%27; drop table outbox_log`, `x'||pg_sleep(9)||'`, `/* */`, `--`, "a\nb", "a\x00b", `ʼ; drop table outbox_log`, `＇`, `{"$gt":""}`, `${jndi:ldap://x}`, `../../etc/passwd`, `%s%n`, `?`, `$1`, `:name`, `@name`, `*`, `>`,
	`order.>`, "\u202e", strings.Repeat("x", 5000), "",
}

// Names are checked and quoted, values are arguments: nothing that is written becomes a part of a statement.
func TestNothingHostileBecomesSQL(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Log, Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dsn, conn := setup(t, mode)
			world := func() string {
				return one[string](t, conn, `select string_agg(nspname, ',' order by nspname) from pg_namespace where nspname !~ '^pg_' `) + " " +
					one[string](t, conn, `select string_agg(relname, ',' order by relname) from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'S')`)
			}
			before, began := world(), time.Now()
			for _, text := range hostile {
				hostileNames(t, dsn, conn, text)
				hostileTexts(t, conn, text)
			}
			require.Equal(t, before, world())
			require.Less(t, time.Since(began), 60*time.Second, "nothing slept")
		})
	}
}

// hostileNames has the text for every name that a program may choose.
func hostileNames(t *testing.T, dsn string, conn *pgx.Conn, text string) {
	t.Helper()
	if text == "" {
		return // the default
	}
	require.ErrorContains(t, Init(t.Context(), dsn, text, Settings{}), "no name of a schema", "%q", text)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	require.ErrorContains(t, Prepare(config, text), "no name of a schema")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	good := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid"}
	_, err = (&Appender{Schema: text}).Append(t.Context(), tx, good)
	require.ErrorContains(t, err, "no name of a schema")
	_, err = (&Appender{Schema: text}).Append(t.Context(), tx, good, good)
	require.ErrorContains(t, err, "no name of a schema")
	_, err = Inbox{Schema: text}.Handle(t.Context(), tx, "1", "mail", func() error { return nil })
	require.ErrorContains(t, err, "no name of a schema")
}

// hostileTexts has it for every text of a message: it is refused by the program and by the database, or kept as it is.
func hostileTexts(t *testing.T, conn *pgx.Conn, text string) {
	t.Helper()
	raw, err := json.Marshal(text)
	require.NoError(t, err)
	good := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid", ContentType: "text/plain", Payload: []byte(text), Headers: map[string]string{"h": text}}
	for name, change := range map[string]func(*Message){
		"none": func(*Message) {}, "type": func(m *Message) { m.AggregateType = text }, "id": func(m *Message) { m.AggregateID = text }, "event": func(m *Message) { m.EventType = text },
		"content": func(m *Message) { m.ContentType = text }, "header": func(m *Message) { m.Headers = map[string]string{text: "v"} },
	} {
		m := good
		m.ID, m.Headers = uuid.Must(uuid.NewV7()), map[string]string{"h": text}
		change(&m)
		fine := m.Check() == nil || name == "content" && text == ""
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = (&Appender{}).Append(t.Context(), tx, m)
		require.Equal(t, fine, err == nil, "%s %q: %v", name, text, err)
		if fine {
			var payload []byte
			var header string
			require.NoError(t, tx.QueryRow(t.Context(), fmt.Sprintf(`select payload, coalesce(headers ->> 'h', '') from %s where event_id = $1`, tableOf(t, conn)), m.ID).Scan(&payload, &header))
			require.Equal(t, text, string(payload))
			require.Equal(t, m.Headers["h"], header)
		}
		require.NoError(t, tx.Rollback(t.Context()))
		if name == "id" && !fine && !strings.Contains(text, "\x00") { // and whoever writes it in SQL
			_, err = conn.Exec(t.Context(), `select outbox_append($1, $2, 'order.paid', $3::jsonb)`, "order", text, string(raw))
			require.Error(t, err, "%q", text)
		}
	}
}

// tableOf is where the mode of the database keeps rows.
func tableOf(t *testing.T, conn *pgx.Conn) string {
	if one[string](t, conn, `select mode from outbox_settings`) == string(Claim) {
		return "outbox_event"
	}
	return "outbox_log"
}
