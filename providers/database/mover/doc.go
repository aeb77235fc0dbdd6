// Package mover copies a tenant's rows from a shared database into its own, and proves that they are the same.
//
// How a row passes: [Mover.Prepare] cuts every table into ranges of its key and stores them in the target (plan.go). [Mover.Copy] takes the
// ranges that are not done, several tables at a time, and copies each by COPY through a pipe (copy.go); the range is marked as done in the
// transaction that has the rows. [Mover.Verify] compares counts and hashes of ranges, and copies again what
// differs (verify.go). [Mover.Sequences] sets the sequences.
//
// The contract:
//   - A range is in the target wholly or not at all, and done or not accordingly, whatever is killed and when: a copy that goes on repeats
//     at most the ranges that were under way.
//   - Every transaction in the target holds a share lock on the row of its session and finds its own fence there. [Mover.Take] locks that
//     row, ends the connections of earlier attempts, and raises the fence: afterwards no earlier attempt commits anything, nor an earlier run of the same attempt where runs are named.
//   - Verify reads the source in one snapshot. When it returns without differences, the target has exactly the rows of that snapshot,
//     whoever wrote meanwhile. What was written after it is the business of the fence, or of the subscription.
//   - Behind a fence the tenant's rows are the same at any time, so each range is a statement with a snapshot of its own: one that lasts as long as a large tenant is compared
//     would keep the source from cleaning up after everybody. Tables that are copied whole are written by others: each is read in one snapshot.
//     So is, first, one whose key has a column of text, where the databases order texts in different ways: no index has the order of its ranges, so a read of one passes over all rows of the tenant.
//   - Ranges keep the order in which they were cut. Where databases that say of themselves that they order texts alike do not, rows are compared otherwise than they lie, and the comparison
//     fails. It never succeeds without all rows: whatever the order, each row is within some range.
//   - The source is only read. Nothing in the target fires: its sessions run as replicas (session_replication_role).
//   - Bytes per second are limited over all tables together. Memory does not depend on the size of rows or tables.
package mover
