package domains

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/domain"
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
