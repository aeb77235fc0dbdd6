//go:build race

package model

// raced: the race detector makes everything ten times slower.
const raced = true
