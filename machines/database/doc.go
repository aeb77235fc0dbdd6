// Package database is the lifecycle of moving one tenant into a database of its own.
//
// The contract:
//   - A session goes requested, allocating_db, running_migrations, migrating_data, verifying, switching, ready. Each state but the last starts one
//     effect, has a deadline, and is entered with the intended entries of the ledger: what it may create, named before it is created.
//   - A failed attempt is repeated after a wait with back-off and jitter, as often as the state allows beyond the first; running out of time is
//     such a failure. Attempts are counted per state. Then the session is failed, and keeps in which state (failedFrom) and at which attempt.
//   - Two clocks end an attempt: the deadline of the state, and the idle limit since the last progress.
//   - failed waits for retry, rollback or resolve, or rolls back by itself (onFailure: rollback); a failed switch always waits.
//   - An undo follows the ledger backwards. Cancel does the same, from every state before switching, and ends in cancelled. What could not be undone is
//     shown (phase rollback_stuck); rollback tries it again, and may skip actions.
//   - ready is no end: its value is kept for as long as the tenant is in its own database. revert leads back by the same undo; it returns to ready, and says why, where the
//     tenant has written since the switch and that cannot go with it. deprovision closes the tenant; rotate renews its password. Only rolled_back, cancelled and deprovisioned are ends.
//   - resolve as rolled_back is an undo without actions, which gives the tenant free for another session.
//   - The phase says what goes on within a state: executing, retry_wait (with the next time), paused, waiting_approval, held, rolling_back, rollback_stuck, rotating.
package database
