// Package operations does what docs/operations.md says, by the commands that stand there, under load.
package operations
