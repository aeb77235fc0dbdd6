// Package api is HTTP, server-sent events and the NATS micro service of one process. Its routes are generated from the machine
// tables, in one loop over them; no lifecycle is named here, and nothing about states is decided here: the engine answers.
//
// They are those of the machines that there are: when one is added ([Server.Prepare]), routes and documents are built anew as a whole, and a request
// ends on those on which it began (rest.Router).
//
// What all routes share is below: package rest serves them, auth knows who asks, schema checks bodies, entities reads what is
// stored, commands asks the engine, rpc answers over NATS. What is not generated is beside: instances, operations, admin,
// documents. A command goes: rest (handler, route) → command.go here → commands (turn, quota, the engine) → its answer.
//
// Writing.
//   - A command is checked for what can be known without the entity (names, namespace, role, media type, size, depth,
//     the schema of its body) and then stored. What these checks refuse was never stored.
//   - 200 says that the engine has answered: applied, unchanged, or seen before (Idempotent-Replayed). 202 says that the command
//     is stored and will be applied or refused; Location is its operation, if it has a key or the client chose not to wait. A refusal is a problem with what is allowed now.
//   - 503 says that the command may have been stored or not; its detail may say that this request stored nothing, which says nothing
//     of an earlier one under the same Idempotency-Key. Sent again under that key the command is applied at most once.
//
// Reading.
//   - One entity is read from the leader of its bucket: it shows every write acknowledged before. Lists, counts and
//     watches come from the index of the process and carry the revision that they were built from; minRevision waits
//     for one.
//   - A watch gives the newest state of each entity, in the order of revisions per entity, and may skip states that were
//     replaced meanwhile. When it cannot continue without a gap it sends "reset" and a new snapshot.
//   - The bookkeeping of the commit protocol is never shown.
//   - Discovery answers from memory; until the catalog is complete it is 503, because a list that lacks instances would
//     be taken for the whole. A blocking read and a watch of a service are woken by that service only. Heartbeats and
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
