package kv

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"
)

// A holder that stops while it renews does not know the revision that its lease has then.
func TestALeaseIsGivenBackAfterARenewalWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "owners")
	one, two := Lease{JS: n.JS, Bucket: "owners", Key: "role", Holder: "one", Life: time.Hour}, Lease{JS: n.JS, Bucket: "owners", Key: "role", Holder: "two", Life: time.Hour}
	ctx := context.Background()
	_, err := one.Take(ctx)
	require.NoError(t, err)
	holder, err := two.Take(ctx)
	require.ErrorIs(t, err, ErrHeld)
	require.Equal(t, "one", holder)

	n.Put(t, "owners", "role", "one")
	require.Error(t, one.Release(ctx), "that is of another process under its name")
	_, err = two.Take(ctx)
	require.ErrorIs(t, err, ErrHeld)

	expired, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, one.Renew(expired)) // which may have been stored
	require.NoError(t, one.Release(ctx))
	_, err = two.Take(ctx)
	require.NoError(t, err, "it is free at once")
	require.NoError(t, one.Release(ctx), "it has no lease to give back")
	_, err = one.Take(ctx)
	require.ErrorIs(t, err, ErrHeld, "and has not given back that of somebody else")
}
