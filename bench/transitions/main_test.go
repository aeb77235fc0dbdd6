package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
)

// What is measured works: every part, but for the million entities.
func TestAllParts(t *testing.T) {
	o := options{duration: 100 * time.Millisecond, entities: 20, clients: []int{1, 4}, profiles: []embedded.Profile{embedded.Interval, embedded.Fsync}}
	require.NoError(t, o.all(t.Context()))
}
