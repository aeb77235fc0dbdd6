// Package snapshot is the example of docs/adding-a-machine.md: the lifecycle of a snapshot of a directory.
//
// A snapshot is KEPT only when the provider has said where it lies and how large it is. TAKING and REMOVING have a
// deadline. A protected snapshot is not removed.
package snapshot
