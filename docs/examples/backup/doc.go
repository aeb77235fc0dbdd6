// Package backup is the example of docs/adding-a-machine.md: the lifecycle of a backup of a directory.
//
// A backup is KEPT only when the provider has said where it lies and how large it is. TAKING and REMOVING have a
// deadline. A protected backup is not removed.
package backup
