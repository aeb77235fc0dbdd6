//go:build race

package prober

// raced: the race detector makes everything ten times slower.
const raced = true
