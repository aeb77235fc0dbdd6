package database

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/online"
)

// A server that has moved a million tenants remembers those that it is moving.
func TestWhatWasToldIsForgottenAfterTheCopy(t *testing.T) {
	t.Parallel()
	var m memory
	now := time.Now()
	for i := range 1000 {
		m.keep("long", online.Status{Synced: 1}, now)
		m.keep(fmt.Sprint(i), online.Status{Synced: i}, now)
		now = now.Add(10 * time.Second)
		_, known := m.of("long", now)
		require.True(t, known)
	}
	require.Less(t, len(m.all), 10)
	s, known := m.of("999", now)
	require.True(t, known)
	require.Equal(t, 999, s.Synced)
	_, known = m.of("1", now)
	require.False(t, known)
}
