// Package database performs the effects of the machine database_provisioning: it moves one tenant out of a shared Postgres into a database of
// its own.
//
// The contract:
//   - Every effect is idempotent and fenced by the version at which its attempt began: in the register of the server, in the target, and in the source.
//   - Errors are failures under the code of the effect's state. Only what may pass is retryable, by SQLSTATE; no credentials or addresses are told.
//   - An undo performs its actions in the order given, says of each what became of it, and stops only at one that says so.
//   - Mode offline fences the source before the copy, mode online after it; a comparison that fails in mode online lifts the fence again.
//
// The parts below: admin, catalog, cutover, mover, online, pg, schema, secret.
package database
