// Package outbox is the transactional outbox: an application writes its events into its own Postgres in the transaction
// that changes its data, and a relay brings each of them into a stream exactly once, in order per aggregate.
//
// # For an application
//
//   - [Init] creates the tables (or instar outbox init does). The mode is a setting of the database, so that applications
//     need not know it.
//   - [Appender] appends [Message]s inside a pgx.Tx or an sql.Tx, in one round trip for any number. Every other language
//     calls the SQL function outbox_append(aggregate_type, aggregate_id, event_type, payload [, headers, event_id,
//     occurred_at, not_before]), or outbox_append_bytes for what is not JSON.
//   - [Recorder] is what an aggregate embeds: Raise in its methods, PullDomainEvents once when it was saved.
//   - [Inbox] makes a handler of events take each of them once, in the transaction of its effect.
//   - [Waker] tells relays that something was committed. It is a hint: they poll, too.
//
// Nothing in the transaction of the application takes a lock that others wait for; in particular nothing notifies. Its role
// needs insert on outbox_log, outbox_event and outbox_inbox, select on outbox_settings and outbox_pressure;
// no more. A relay's role owns the schema, and reads xact_start of others (pg_read_all_stats) to tell how long they write.
//
// Tests run on Postgres 15; 17 was tried.
//
// # For a relay
//
// What is in the schema, by mode. All times are those of the database.
//
//   - outbox_settings: one row: mode, shards, retention, max_lag, inbox_retention.
//   - claim: table outbox_event; [Store].ClaimNextBatch, Renew, MarkSent, MarkFailed, Release, ReleaseExpired; [Worker].
//     Its column phase says what its indexes go by: 0 NEW and SENDING, 1 FAILED and DEAD, 2 SENT.
//   - log: table outbox_log (seq, day, shard, event_id, occurred_at, created_at, aggregate_type, aggregate_id, event_type,
//     content_type, not_before, headers, payload), index outbox_log_seq (seq). outbox_fence() gives (mark, writers):
//     rows up to mark may be read when outbox_writers() has none of those writers any more, by a statement that begins
//     afterwards; and published when the transaction of outbox_fence() has ended: numbers up to mark survive a crash then.
//     outbox_oldest_writer() says since when somebody holds the fence back. [ShardOf] is outbox_shard().
//   - outbox_cursor (source, shard, seq, reading, system_identifier, owner, updated_at): how far a shard has come. The
//     truth is in the stream, this is for the view, the lag, and retention: what is not written here is not dropped.
//   - outbox_parked (shard, seq, event_id, day, …, state, attempts, next_retry_at, not_before, last_error, redrives): rows behind the cursor that are not published. The first of an aggregate has next_retry_at, when it is due
//     (infinity when DEAD); those that wait behind it are NEW and have none. Operators change it at any time: Redrive makes
//     a row NEW, due now, with attempts 0 and one more redrive, Discard deletes it (a relay finds the one that is the
//     first then). So a relay
//     looks here for what is due, and keeps no copy of the states.
//   - outbox_late (shard, seq, event_id, day, marker, sent_at): rows of mode log that were parked and
//     published since, for as long as the retention, and where: a stream that lost its tail has lost those that are not
//     behind its last marker, and gets them again. Without a marker they were discarded.
//   - outbox_dropped (shard, seq): up to which of its rows a shard of mode log has lost days by retention.
//   - outbox_stream (source, mode, shard, stream, subject, marker, generation, cluster): the last marker of a shard that
//     is known and how many there were, so that a stream or a database that was set back is noticed.
//   - outbox_pressure (source, lag, at): what the relay says, for the limit of outbox_append; [Store].Publish writes it.
//   - outbox_maintain(): makes the days to come, drops the old ones; call it once an hour.
//
// # For operators
//
// [Store] has, for all modes, with who did it in outbox_audit: Status, Redrive, Discard, Purge, Tail.
package outbox
