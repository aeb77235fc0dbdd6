package outbox

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Applications append through a pooler that gives every transaction another session, whatever their driver prepares or
// does not: nothing of theirs is left in a session.
func TestAppendThroughAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Log, Claim} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dsn, conn := setup(t, mode)
			through := pg.Pooler(t, dsn, "pool_mode = transaction\ndefault_pool_size = 3\nserver_round_robin = 1")
			at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
			m := Message{AggregateType: "order", AggregateID: "1", EventType: "order.paid", Payload: []byte(`{"a": "\\ \" \u00e9"}`), OccurredAt: at, Headers: map[string]string{"tenant": `a "b" \c`}}
			n := 0
			for _, exec := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec} {
				config, err := pgxpool.ParseConfig(through)
				require.NoError(t, err)
				config.ConnConfig.DefaultQueryExecMode = exec
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				defer pool.Close()
				for i := range 10 {
					msgs := make([]Message, 1+i%2) // both calls
					for k := range msgs {
						msgs[k] = m
						msgs[k].ID, n = uuid.Must(uuid.NewV7()), n+1
					}
					require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
						if _, err := (&Appender{}).Append(t.Context(), tx, msgs...); err != nil {
							return err
						}
						first, err := Inbox{}.Handle(t.Context(), tx, msgs[0].ID.String(), "mail", func() error { return nil })
						require.True(t, first)
						return err
					}), exec.String())
				}
			}
			db, err := sql.Open("pgx", through+"&default_query_exec_mode=exec")
			require.NoError(t, err)
			defer db.Close()
			for range 10 {
				tx, err := db.Begin()
				require.NoError(t, err)
				m.ID, n = uuid.Must(uuid.NewV7()), n+1
				_, err = (&Appender{}).AppendSQL(t.Context(), tx, m)
				require.NoError(t, err)
				first, err := Inbox{}.HandleSQL(t.Context(), tx, m.ID.String(), "mail", func() error { return nil })
				require.NoError(t, err)
				require.True(t, first)
				require.NoError(t, tx.Commit())
			}
			require.Equal(t, n, one[int](t, conn, `select count(*)::int from outbox_event_status where occurred_at = $1 and headers ->> 'tenant' = 'a "b" \c' and payload = $2`, at, m.Payload))
		})
	}
}

// What needs a session says so, whether the pooler refuses what it does not know or hides it.
func TestAPoolerIsRefusedWhereASessionIsNeeded(t *testing.T) {
	t.Parallel()
	for _, pooling := range []string{"transaction", "session"} {
		for name, config := range map[string]string{"Refuses": "", "Hides": "ignore_startup_parameters = search_path,jit,enable_bitmapscan,enable_seqscan,default_transaction_isolation,default_transaction_read_only,default_transaction_deferrable,instar.session"} {
			t.Run(fmt.Sprint(pooling, name), func(t *testing.T) {
				t.Parallel()
				dsn, _ := setup(t, Log)
				through := pg.Pooler(t, dsn, "pool_mode = "+pooling+"\n"+config)
				require.ErrorIs(t, Init(t.Context(), through, "", Settings{}), ErrPooler)
				store, err := Open(t.Context(), through, "")
				require.NoError(t, err)
				defer store.Pool.Close()
				_, err = store.Status(t.Context())
				require.ErrorIs(t, Pooled(err), ErrPooler)
			})
		}
	}
}
