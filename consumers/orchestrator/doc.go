// Package orchestrator starts queued tasks within the limits, and keeps the states of repositories what their tasks make them. One process at a time runs it, as a role of the cluster.
//
// The contract:
//   - A task is started only after its slot was written into the ledger, at the revision of the last write. So whoever was deposed starts nothing, and what two holders of the
//     role have started together is within the limits.
//   - A slot is given back only after the stored task shows that it does not run, and that the start for which the slot was taken cannot come any more.
//   - What is queued starts, and repositories come to the state that their tasks make, whenever the process ended: everything is read from what is stored, and a start that was
//     not seen to arrive is sent again. The table of machines/task takes each start once.
//   - It decides nothing about tasks but when they start; it cancels those of a batch that stops, and those of a repository that is deleted.
//
// Package schedule decides who is next, package tally counts, package lost has the tasks whose repository is not there. The slots are in the bucket [Slots] (ledger.go). A change of a task goes from loop.go by tasks.go into both; grants
// leave by start.go, and what repositories are told by repositories.go.
package orchestrator
