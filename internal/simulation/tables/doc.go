// Package tables is the outbox of a Postgres database in memory: it speaks the wire protocol on connections in memory, so that the relay, the appender and the operator's functions
// of streams/outbox run on pgx and on it as they are.
//
// It is no Postgres. It answers the statements in statements.sql, each by a function of Go (relay.go, parked.go, claim.go, admin.go, append.go), and refuses every other one as not known: who changes a statement of the outbox changes it here.
// What is behind them is what those statements ask for: transactions in read committed, of which each statement sees what was committed before it began (store.go); locks of rows, for which others
// wait, and deadlocks; the numbers of a sequence, which no rollback takes back; who has appended and not ended; a log that is written to disk before a commit is answered, or later (wal.go). A crash undoes what the log
// does not have, and a database that is set back everything after a moment.
//
// Whoever drives it decides what happens next, as in package model: what clients have sent waits ([Server.Pending]) until the next statement of a connection is executed ([Server.Step]), and what was answered
// ([Server.Outbound]) until it is delivered ([Server.Deliver]). With [Server.Auto] all of it happens at once. Nothing is drawn at random.
//
// That it does not lie is tested against a real Postgres: types of each statement, and the same random operations, answer for answer (conformance_test.go).
package tables
