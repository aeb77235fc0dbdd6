package database

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/mover"
)

// A server that has moved a million tenants remembers those that it is moving.
func TestWhatWasToldIsForgottenAfterTheCopy(t *testing.T) {
	t.Parallel()
	var m memory
	now := time.Now()
	for i := range 1000 {
		m.keep("long", howFar{whole: 1}, now)
		m.keep(fmt.Sprint(i), howFar{whole: i}, now)
		now = now.Add(10 * time.Second)
		_, known := m.of("long", now)
		require.True(t, known)
	}
	require.Less(t, len(m.all), 10)
	s, known := m.of("999", now)
	require.True(t, known)
	require.Equal(t, 999, s.whole)
	_, known = m.of("1", now)
	require.False(t, known)
}

// In mode online the rate is that of all rows, whoever has copied them, over the last seconds; what is left is told by it.
func TestHowLongAReplicationTakes(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(rows, bytes, lag int64, seconds int) howFar {
		return howFar{whole: 1, rows: rows, bytes: bytes, lag: lag, at: began.Add(time.Duration(seconds) * time.Second)}
	}
	first, news := at(2000, 100, 50, 2).after(at(0, 0, 60, 0))
	require.True(t, news)
	require.InDelta(t, 1000, first.rate, 0.01)
	_, news = at(2000, 100, 50, 4).after(first)
	require.False(t, news, "a copy that stands")
	slower, news := at(2400, 120, 70, 4).after(first)
	require.True(t, news)
	require.Less(t, slower.rate, 900.0)
	require.Greater(t, slower.rate, 500.0, "of the last seconds, and not of two looks")
	for _, nearer := range []howFar{at(2400, 120, 60, 6), at(2300, 130, 70, 6), {whole: 2, rows: 2300, lag: 70, at: began.Add(6 * time.Second)}} {
		next, news := nearer.after(slower)
		require.True(t, news)
		require.EqualValues(t, 2400, next.rows, "what was told is not taken back")
	}
	p := mover.Progress{Rows: 400, Total: 10_000, Bytes: 10, Rate: 1, ETA: time.Hour}.With(1600, 90, 1000)
	require.Equal(t, mover.Progress{Rows: 2000, Total: 10_000, Bytes: 100, Rate: 1000, ETA: 8 * time.Second}, p)
	p = mover.Progress{Rows: 400, Total: 1000}.With(1600, 90, 1000)
	require.Equal(t, mover.Progress{Rows: 2000, Total: 2000, Bytes: 90, Rate: 1000}, p)
}
