// Package admin makes, keeps and takes away tenants' databases and their roles on one Postgres server.
//
// The contract:
//   - A server has a register of the databases that were made here: the table instar.tenant_database of its maintenance database.
//     An entry is written, as intended, before CREATE DATABASE runs, which cannot be part of a transaction. A database without an entry
//     is somebody else's, and is never touched.
//   - Every call holds the lock of the name (an advisory lock of a session) and is fenced: one with a fence below that of the entry is
//     refused with [pg.ObsoleteError], so a late create cannot follow the undo, also where other sessions had the name meanwhile.
//   - All calls are get-or-create, or take away what is there; a repetition changes nothing.
//   - A database is not dropped but quarantined: closed, renamed, its role locked out; [Server.Sweep] drops it after a grace period.
//   - Templates are closed databases, made once per set of migrations; one that was not finished is made anew.
package admin
