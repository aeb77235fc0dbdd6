// Package queue is what operators set while tasks run: limits, rates, caps and pauses. The name of an entry says what it is for:
//
//	cluster       all tasks of all namespaces; only in the namespace default
//	all           all tasks of its namespace
//	type-<type>   the tasks of a type, in its namespace
//	pool-<pool>   the tasks of a pool of workers, in its namespace; pool-nodes is that of the nodes
//
// A task starts when every entry that it belongs to allows it. An entry that does not exist allows everything, but for cluster, whose limit is then [DefaultLimit]. A change
// counts from the next start on; what runs goes on. The limits of repositories are in machines/repository.
//
// machine.go is the table, data.go what is stored and sent.
package queue
