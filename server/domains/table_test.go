package domains

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/domain/proxy"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// One of many who want a name at the same moment gets it, and each of the others learns that it is taken.
func TestOneOfManyGetsAName(t *testing.T) {
	t.Parallel()
	const many, host = 100, "acme.apps.example.test"
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, RoutesBucket, "", 0, 1))
	rows, err := kv.Open(t.Context(), e.JS, RoutesBucket, kv.JSON[domain.Row]())
	require.NoError(t, err)
	table := &table{rows: rows}
	errTaken := errors.New("it is taken")
	begin, results := make(chan struct{}), make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			<-begin
			results[i] = table.Change(context.WithoutCancel(t.Context()), host, func(r domain.Row) (domain.Row, error) {
				if r.Owner != "" {
					return r, errTaken
				}
				r.Owner = fmt.Sprint("session ", i)
				return r, nil
			})
		})
	}
	close(begin)
	all.Wait()
	r, err := table.Row(t.Context(), host)
	require.NoError(t, err)
	for i, err := range results {
		if r.Owner == fmt.Sprint("session ", i) {
			require.NoError(t, err, "the one that has it")
		} else {
			require.ErrorIs(t, err, errTaken)
		}
	}
	require.NotEmpty(t, r.Owner)
}

// The proxy gets a new table when a route changes, not with each change of a row.
func TestOnlyRoutesThatChangeAreSet(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, RoutesBucket, "", 0, 1))
	rows, err := kv.Open(t.Context(), e.JS, RoutesBucket, kv.JSON[domain.Row]())
	require.NoError(t, err)
	table := &table{rows: rows, synced: make(chan struct{})}
	put := func(host string, fence uint64, targets ...machine.Target) {
		require.NoError(t, table.Change(t.Context(), host, func(domain.Row) (domain.Row, error) {
			r := domain.Row{Owner: "default.acme.shop", Fence: fence}
			if targets != nil {
				r.Route = &machine.Route{Targets: targets}
			}
			return r, nil
		}))
	}
	a, b := machine.Target{Address: "10.0.0.7:80", Weight: 1}, machine.Target{Address: "10.0.0.8:80", Weight: 1}
	put("a.example.com", 1, a)
	sets, dropped := make(chan int, 100), make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var follows sync.WaitGroup
	follows.Go(func() {
		table.follow(ctx, func(routes []proxy.Route) { sets <- len(routes) }, func(host string) { dropped <- host }, slog.New(slog.DiscardHandler))
	})
	defer follows.Wait()
	defer cancel()
	require.Equal(t, 1, <-sets)
	put("a.example.com", 2, a)
	put("b.example.com", 3) // is claimed
	put("a.example.com", 4, a)
	put("b.example.com", 5, a)
	require.Equal(t, 2, <-sets)
	put("b.example.com", 6, b)
	require.Equal(t, 2, <-sets)
	put("b.example.com", 7)
	require.Equal(t, 1, <-sets)
	require.Equal(t, "b.example.com", <-dropped)
	require.Empty(t, sets)
}
