// Package index is an index over one bucket, which is kept by one watch and answers lists, counts and live subscriptions from
// memory. It knows the keys of entities (namespace.name, or namespace.parent.name), and of a value what describes it: a [Meta].
//
// A change goes from the feed to index.go, which describes it (meta.go, or what the index was made with), and puts it into the
// table (table.go, whose ordered sets are in set.go); then it is told to subscriptions (subscribe.go, batches.go) and to those who wait
// for its revision (wait.go). Lists are answered in query.go, by selectors (selector.go) and in orders (order.go).
//
// An [Index] is one watch per bucket and process, however many clients read.
//   - Run blocks until its context ends and is the only writer. It reconnects with back-off, resumes after the last
//     revision, and builds everything anew, beside what is being served, when it cannot resume safely.
//   - Before Ready is closed the index is empty. From then on it is never incomplete.
//   - Every page carries a revision: all writes up to it are in the page. Wait blocks until a revision is reached, so
//     that a client can read what it wrote.
//   - A key goes when its delete marker comes. What is purged from the stream without one is noticed when the index is
//     built anew.
//   - A value that cannot be described is kept as an item with a Problem and is counted.
//   - Readers never block the watch for longer than one bounded piece of a scan.
//
// Subscriptions. A [Subscription] gives the changes after its Revision, from the index's one watch to many clients.
// A slow reader never slows the watch: several changes of one key become the newest one, and when more keys wait than
// the buffer holds, the channel is closed and Lost says so. The reader then subscribes and lists again. [Batches] gives
// all that waits at once, and the revision up to which that is everything: for a reader that keeps a copy of its own.
package index
