// Package consumers is what acts. Its packages run the machines' transitions, perform their effects, look at the world, and
// build the read models; this one holds what they share: what a consumer is made of ([Deps]), whom it tells what happens
// ([Meter]), how a message of an entity is published ([WriteOf]), and the bounds on what is stored.
//
//   - engine: one loop per partition of the commands, and the commit protocol
//   - effects: performs what the machines ask for
//   - observer: looks at entities whose state has a poll
//   - views: folds events into read models
//   - audit: records events in chains that show what was changed or removed
//   - cluster: which node runs which partition, and who has a role
//   - poison: the notes by which a message that ends its process each time is found
//   - prober: what the owner of an instance does beside its transitions
//   - answers: keeps the answers to commands, by their idempotency keys
//   - reconcile: holds a value against the streams of its messages
//   - bulkack: acks many commands of a partition at once
//   - backup: copies everything that is stored, and restores it
//
// Run of each blocks until its context ends and all its goroutines have gone.
package consumers
