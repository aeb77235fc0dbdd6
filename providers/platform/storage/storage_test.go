package storage_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/providers/platform/storage/storagetest"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestObjectStoresKeepTheContract(t *testing.T) {
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	storagetest.Run(t, storagetest.Suite{
		Provider: &storage.ObjectStores{JS: e.JS},
		Put: func(ctx context.Context, b storage.Bucket, key string, data []byte) error {
			o, err := e.JS.ObjectStore(ctx, b.Name)
			if err == nil {
				_, err = o.PutBytes(ctx, key, data)
			}
			return err
		},
		Get: func(ctx context.Context, b storage.Bucket, key string) ([]byte, error) {
			o, err := e.JS.ObjectStore(ctx, b.Name)
			if err != nil {
				return nil, err
			}
			return o.GetBytes(ctx, key)
		},
		Foreign: func(ctx context.Context, name string) (storage.Bucket, error) {
			_, err := e.JS.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: name})
			return storage.Bucket{Name: name}, err
		},
	})
}

// Of two installations on one server each has its own bucket of a name.
func TestThePrefixSetsInstallationsApart(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	for _, prefix := range []string{"one_", "two_"} {
		o := &storage.ObjectStores{JS: e.JS, Prefix: prefix}
		b, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: prefix})
		require.NoError(t, err)
		require.Equal(t, storage.Bucket{ID: "jetstream/" + prefix + "tenant-acme", Name: prefix + "tenant-acme"}, b)
	}
	require.NoError(t, (&storage.ObjectStores{JS: e.JS, Prefix: "one_"}).Delete(t.Context(), "tenant-acme", "one_"))
	_, err := e.JS.ObjectStore(t.Context(), "two_tenant-acme")
	require.NoError(t, err)
}

// A server that does not answer is tried again later.
func TestAServerThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	nc := e.Connect()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	nc.Close()
	_, err = (&storage.ObjectStores{JS: js}).Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

// full is a server whose store has no room left to be promised, as one with max_file_store says it; the server of this module promises what it has not.
type full struct{ jetstream.JetStream }

func (full) CreateObjectStore(context.Context, jetstream.ObjectStoreConfig) (jetstream.ObjectStore, error) {
	return nil, &jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}
}

// Where the store has no room for a quota, nothing of the bucket is there, and a try that comes when there is room makes it.
func TestAStoreWithoutRoomForTheQuotaIsTriedAgain(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	o, acme := &storage.ObjectStores{JS: full{e.JS}}, storage.Spec{Name: "tenant-acme", Owner: "o", Quota: 32 << 20}
	_, err := o.Ensure(t.Context(), acme)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "cannot make the bucket tenant-acme")
	require.ErrorContains(t, err, "insufficient storage")
	_, err = e.JS.ObjectStore(t.Context(), acme.Name)
	require.ErrorIs(t, err, jetstream.ErrBucketNotFound)
	require.NoError(t, o.Delete(t.Context(), acme.Name, acme.Owner), "an undo has nothing to do")
	o.JS = e.JS
	_, err = o.Ensure(t.Context(), acme)
	require.NoError(t, err)
}
