// Package documents keeps what tasks have written within bounds, and removes what nobody refers to any more.
//
// The contract:
//   - A document that [Store.Put] has kept is there until its task is reset or deleted, a later run of the task has succeeded, or a bound is reached: then the oldest go first, whoever refers to
//     them. The bounds are bytes of all, documents of a repository, and age.
//   - [Store.Erase] removes what was stored before it began, or fails.
//   - [Store.Sweep] removes what deletions, later runs and killed writers have left, at least once: it decides by what is stored, so it does not matter who ended when.
//   - Nothing is removed that was written a moment ago, or under a name that is not of a task.
//
// Each process that writes follows the names in the bucket ([Store.Run]), so neither of them lists it. index.go is what is known, store.go what is done with it.
package documents
