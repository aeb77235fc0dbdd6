// Package embedded is the NATS server that a process has of its own.
//
// The contract:
//   - A directory has one server: [Start] locks it, and refuses one that was written as a single server or as a member of a cluster
//     when it is the other now.
//   - What an acknowledged write survives is the [Profile]; under [Fsync] after [Server.Syncer] has called back. Under [Interval] all streams of a single server are synced at one
//     point, so that a power loss costs all of them the same.
//   - [Server.Restart] starts it again on the same directory, which is what it takes when its disk has failed. [Server.Health] says when,
//     and [ErrStuck] that only another process can.
//   - The listener takes the process itself and its [User]s, each with the rights of its role, and nobody else unless it is open.
//
// server.go starts and stops it, cluster.go makes it a member, accounts.go and users.go say who may what. barrier.go and flush.go sync, by
// functions of nats-server that stores.go reaches and proves at start; elections.go sets its times; store.go says how much room there is.
package embedded
