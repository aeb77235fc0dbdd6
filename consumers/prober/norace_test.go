//go:build !race

package prober

const raced = false
