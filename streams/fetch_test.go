package streams

import (
	"context"
	"io"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// unrouted is a consumer that the routes of a cluster do not know yet.
type unrouted struct {
	jetstream.Consumer
	misses int
	asked  int
	after  func()
}

func (u *unrouted) Fetch(n int, _ ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	u.asked++
	if u.after != nil {
		u.after()
	}
	if u.asked <= u.misses {
		return fetched{err: nats.ErrNoResponders}, nil
	}
	return fetched{n: n}, nil
}

type fetched struct {
	n   int
	err error
}

func (f fetched) Messages() <-chan jetstream.Msg {
	all := make(chan jetstream.Msg, f.n)
	for range f.n {
		all <- nil
	}
	close(all)
	return all
}

func (f fetched) Error() error { return f.err }

func TestFetchOfAConsumerThatWasJustMade(t *testing.T) {
	t.Parallel()
	took := 0
	take := func(jetstream.Msg) error { took++; return nil }
	late := &unrouted{misses: 3}
	n, err := Fetch(t.Context(), late, 2, take)
	require.NoError(t, err)
	require.Equal(t, []int{2, 2, 4}, []int{n, took, late.asked})

	ctx, cancel := context.WithCancel(t.Context())
	_, err = Fetch(ctx, &unrouted{misses: 1 << 20, after: cancel}, 2, take)
	require.ErrorIs(t, err, context.Canceled)
	_, err = Fetch(t.Context(), &unrouted{}, 1, func(jetstream.Msg) error { return io.EOF })
	require.ErrorIs(t, err, io.EOF)
	_, err = Fetch(t.Context(), &unrouted{misses: 1 << 20}, 1, take)
	require.ErrorIs(t, err, nats.ErrNoResponders, "it is not there")
}
