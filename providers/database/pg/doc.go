// Package pg is what all parts of the database provider need of Postgres: connections, quoting, names, and what an error means.
//
// The contract:
//   - [Connect] sets everything that the text of a value depends on (time zone, styles, digits), so that texts and hashes of two servers
//     can be compared. Its connections take no isolation level from the server's configuration: what runs outside of a transaction sees
//     what is committed when it begins. One whose address has a [Kept] may be one that was used before, by the same, or, where that has an [Idle], by another.
//   - [Transient] says whether the same call may work later, and when; it reads SQLSTATEs, never texts.
//   - No text that leaves [Discreet] has credentials or addresses in it.
//   - Names that are made here are at most 63 bytes long and made of one tenant, so that a repetition finds what it has made.
package pg
