package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is measured works, and nothing is lost: with the program alone.
func TestTables(t *testing.T) {
	o := options{durabilities: []string{"interval", "fsync"}, clients: []int{1, 4}, entities: 10, runs: 1, keyed: true, ready: true, duration: 100 * time.Millisecond}
	require.NoError(t, o.all(t.Context()))
}
