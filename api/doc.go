// Package api is HTTP, server-sent events and the NATS micro service of one process. Its routes are generated from the machine
// tables, in one loop over them; no lifecycle is named here, and nothing about states is decided here: the engine answers.
//
// What all routes share is below: package rest serves them, auth knows who asks, schema checks bodies, entities reads what is
// stored, commands asks the engine, rpc answers over NATS. What is not generated is beside: instances, operations, admin,
// documents. A command goes: rest (handler, route) → command.go here → commands (turn, quota, the engine) → its answer.
//
// Writing.
//   - A command is checked for what can be known without the entity (names, namespace, role, media type, size, depth,
//     the schema of its body) and then stored. What is refused at the door was never stored.
//   - 200 says that the engine has answered: applied, unchanged, or seen before (Idempotent-Replayed). 202 says that the command
//     is stored and will be applied or refused; Location is the entity. A refusal is a problem with what is allowed now.
//   - 503 says that it is not known whether the command was stored. Sent again under the same Idempotency-Key it is
//     applied at most once.
//
// Reading.
//   - One entity is read from the leader of its bucket: it shows every write acknowledged before. Lists, counts and
//     watches come from the index of the process and carry the revision that they were built from; minRevision waits
//     for one.
//   - A watch gives the newest state of each entity, in the order of revisions per entity, and may skip states that were
//     replaced meanwhile. When it cannot go on without a gap it says "reset" and sends a new snapshot.
//   - The bookkeeping of the commit protocol is never shown.
//   - Discovery answers from memory; until the catalog is complete it is 503, because a list that lacks instances would
//     be believed. A blocking read and a watch of a service are woken by that service only. Heartbeats and
//     acknowledgements go over core NATS and are not stored.
//
// Errors are problems of RFC 9457, whatever went wrong and wherever. The type of a problem is the place in /docs that
// explains it. No text of an infrastructure error leaves the process: it is logged under the request's id.
//
// Every operation declares the role that it needs; New fails for one that does not. A token of one namespace does not
// learn that others exist.
//
// The caller runs the server from [Server.HTTPServer], calls [Server.Close] to end watches before it shuts that server
// down, and closes connections and indexes afterwards. Handlers leave no goroutine behind.
package api
