// Package cutover moves a tenant's traffic from the shared database to its own: the fence that stops its writers, and the row that says
// where its data is.
//
// The contract of the fence:
//   - When [Source.Fence] returns, no transaction that writes rows of the tenant into the fenced tables commits any more, whatever its
//     isolation level: it gets SQLSTATE 25006. Every one that has committed has done so before. Other tenants write on, and TRUNCATE of a
//     shared table is refused.
//   - Triggers have the tenant in their condition and look nothing up, because a transaction with an old snapshot would not see what they
//     look for. A child's trigger reads its parent; if it cannot see that, the transaction is told to repeat (40001).
//   - Each table is fenced by itself: CREATE TRIGGER waits for the running writers of the table, which is the drain, and holds no other lock
//     meanwhile, so it is in no deadlock. It gives up its place in the queue every second, so that one long transaction does not stop others.
//   - Triggers fire in sessions of replicas, too (ENABLE ALWAYS).
//   - [Source.Lift] waits for nobody's lock of a table: the function of the triggers lets everybody through, and they are dropped when nobody reads, at last by [Source.Sweep].
//
// The contract of the row (tenant_runtime): it changes with an epoch that only rises, in one transaction, by the current attempt of the
// session that has the tenant. [Source.Restore] gives it back what it had before, column by column; where there was none, there is none
// afterwards.
package cutover
