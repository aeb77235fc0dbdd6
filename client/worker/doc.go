// Package worker performs effects of Instar's machines outside of the server: tasks, or the effects of a machine of your own. It speaks plain NATS and needs
// nothing else of Instar.
//
// The contract:
//   - When an entity does not wait for an attempt any more (canceled, superseded, past its deadline), the context of the handler ends with [ErrUnwanted] as its cause,
//     and what it returns is thrown away. A task that has just been sent is begun without asking; it is asked a quarter of a second later. For a task that is
//     older, or was delivered before, the handler is called only if the entity waits for it.
//   - A task may be delivered twice, also at the same time: handlers are idempotent. Of two results of one attempt the machine takes one.
//   - A result is stored before its task is acknowledged, so a worker that dies at any point loses nothing: its tasks come again after the ack wait of the consumer (30 s),
//     here or elsewhere. While a handler runs, that time is extended.
//   - An error of a handler is a failure that the machine's retry policy tries again, unless it is [Terminal].
//   - When the context of [Worker.Run] ends, no task is taken any more, and those under way have the grace to finish. Then their contexts end with
//     [ErrStopped], and they are given back at once.
//
// The server must leave the effects to others (gateway: external, or server.Options of a binary of your own with effects.External); two that
// serve the same effect share its tasks.
package worker
