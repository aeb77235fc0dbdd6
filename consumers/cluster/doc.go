// Package cluster says which node runs which partition, and which process has a role.
//
//   - [Node] is this process among the nodes: its key in the bucket of owners (node_key.go), what the bucket says of all of them
//     (bucket.go), the claims of partitions (partitions.go), of which each belongs to the node that rendezvous hashing names (rendezvous.go).
//   - [Role] is what one process at a time does: the one that holds its lease (role.go).
//   - [Fence] says under which claim something was seen.
//
// None of this carries the safety of the commit protocol, which the revision checks of entities do: it keeps nodes from hindering
// each other. What lives is judged by the clock since boot of whoever looks, and by no wall clock.
package cluster
