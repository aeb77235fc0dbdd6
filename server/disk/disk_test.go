package disk

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// What is told of the store is what the last look found, also while nothing can be stored: by it alerts fire. A store that is not known
// is not told. The streams are told of room that was made, not of room that is a little more, and not while there is none.
func TestTheStoreIsToldWhileItIsFull(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var room streams.Room
	var failed, refused error
	var told []int64
	d := &Watch{
		Log:   slog.New(slog.DiscardHandler),
		Room:  func(context.Context) (streams.Room, error) { return room, failed },
		Share: func(_ context.Context, bytes int64) error { told = append(told, bytes); return refused },
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(d)
	look := func(used, limit int64) map[string]float64 {
		t.Helper()
		room, told = streams.Room{Used: used * mib, Limit: limit * mib, Disk: true}, nil
		d.setRefusal(d.lacksRoom(t.Context()))
		families, err := registry.Gather()
		require.NoError(t, err)
		values := map[string]float64{}
		for _, f := range families {
			values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
		}
		return values
	}
	shows := func(used, limit, unavailable float64) map[string]float64 {
		return map[string]float64{"instar_store_bytes": used * mib, "instar_store_limit_bytes": limit * mib, "instar_store_unavailable": unavailable}
	}
	require.Equal(t, shows(4, 3, 1), look(4, 3))
	require.ErrorContains(t, d.Err(), "the disk of the streams is full")
	require.Empty(t, told, "a share of a disk that others have filled")
	refused = errors.New("no leader")
	require.Equal(t, shows(4, 100, 0), look(4, 100))
	refused = nil
	look(4, 100)
	require.Equal(t, []int64{100 * mib}, told, "again")
	look(4, 120)
	require.Empty(t, told)
	look(4, 400)
	require.Equal(t, []int64{400 * mib}, told)
	look(4, 100)
	look(4, 400)
	require.Empty(t, told)
	failed = errors.New("it is restarting")
	require.Equal(t, map[string]float64{"instar_store_unavailable": 0}, look(4, 400))
}
