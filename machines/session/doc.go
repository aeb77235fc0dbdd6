// Package session is what machines share that lead a tenant somewhere by stages: attempts, clocks, phases, the ledger and its undo.
//
// The contract:
//   - A machine has a [Kind]: its stages in order, what each of them may create, and what an undo does. Its data embeds [Course], [Trail] and [End], and its table
//     is made of the edges of this package and its own.
//   - A stage is one effect in one state. A state may have several, its steps, one after the other; [Course].Step says which one goes on.
//   - A failed attempt is repeated after a wait with back-off and jitter, as often as the stage allows beyond the first; running out of time is such a failure. Attempts
//     are counted per stage. Then the session is failed, and keeps in which state and at which attempt.
//   - Two clocks end an attempt: the time of the stage, and the idle limit since the last progress.
//   - What a stage may create is in the ledger, as intended, before its effect is sent. An undo follows the ledger backwards; what could not be undone is shown (rollback_stuck).
//   - A firm stage is not paused, cancelled or rolled back by itself: it fails into failed, and holds there.
//
// stage.go is the stages and their clocks, table.go the edges, actions.go what they do, data.go what is stored and sent.
package session
