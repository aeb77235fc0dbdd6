// Package relay runs the relays of outboxes inside this process, as the entities of the machine relay want it.
//
// The contract:
//   - A [Source] is a database that the configuration of this node names. A task for another one fails for good: the
//     message says where to add it.
//   - Every node runs an engine for each of its sources whose entity wants it; which of them publishes a shard is decided
//     by the engine's leases. [Provider.Follow] tells a node what the entity wants, a task does the same at once and
//     waits for it. Both are idempotent; a task that is older than one that was seen is refused.
//   - An engine that ends although it should run is started again with back-off, from 1 s to 30 s. Meanwhile looking at it
//     says why it stands.
//   - Stopping an engine waits until it has published what it had begun and let go of its shards.
//   - No secret of a source leaves this package: what databases say is told without connection strings.
//
// [Provider.Run] blocks until its context ends and all engines have ended.
package relay
