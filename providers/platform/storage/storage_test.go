package storage_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"strings"
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

// A tenant writes what it likes into its bucket: a name, an id or a link that fits into no line of the protocol ends no connection of the server, and a link is not followed, wherever it is written.
func TestWhatATenantHasWrittenEndsNoConnection(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	o := &storage.ObjectStores{JS: e.JS}
	other, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-other", Owner: "other"})
	require.NoError(t, err)
	store, err := e.JS.ObjectStore(t.Context(), other.Name)
	require.NoError(t, err)
	secret, err := store.PutString(t.Context(), "secret", "not acme's")
	require.NoError(t, err)
	b, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	long, sum := strings.Repeat("x", 5000), sha256.New()
	sum.Write([]byte("one two"))
	for _, chunk := range []string{"one ", "two"} {
		_, err := e.JS.Publish(t.Context(), "$O.tenant-acme.C.plain", []byte(chunk))
		require.NoError(t, err)
	}
	link := func(bucket string) *jetstream.ObjectMetaOptions {
		return &jetstream.ObjectMetaOptions{Link: &jetstream.ObjectLink{Bucket: bucket, Name: "secret"}}
	}
	for subject, info := range map[string]jetstream.ObjectInfo{
		"long":         {ObjectMeta: jetstream.ObjectMeta{Name: long}, NUID: "plain", Size: 7, Digest: jetstream.GetObjectDigestValue(sum)},
		"id":           {ObjectMeta: jetstream.ObjectMeta{Name: "id"}, NUID: long, Size: 7},
		"all":          {ObjectMeta: jetstream.ObjectMeta{Name: "all"}, NUID: ">", Size: 7, Digest: jetstream.GetObjectDigestValue(sum)},
		"gone":         {ObjectMeta: jetstream.ObjectMeta{Name: "gone"}, NUID: "gone", Size: 7},
		"part":         {ObjectMeta: jetstream.ObjectMeta{Name: "part"}, NUID: "plain", Size: 8, Digest: jetstream.GetObjectDigestValue(sum)},
		"said":         {ObjectMeta: jetstream.ObjectMeta{Name: "linked"}, NUID: secret.NUID, Size: 10, Digest: secret.Digest},
		"bGlua2Vk":     {ObjectMeta: jetstream.ObjectMeta{Name: "a link", Opts: link("tenant-other")}, NUID: "link"}, // where "linked" is kept
		"ZmFyIGF3YXk=": {ObjectMeta: jetstream.ObjectMeta{Name: "far", Opts: link(long)}, NUID: "far"},
	} {
		info.Bucket = b.Name
		raw, err := json.Marshal(info)
		require.NoError(t, err)
		_, err = e.JS.Publish(t.Context(), "$O.tenant-acme.M."+subject, raw)
		require.NoError(t, err)
	}
	got := map[string]string{}
	require.NoError(t, o.Read(t.Context(), b, func(at storage.Object) error {
		if at.Link != nil {
			got[at.Name] = "a link"
			return nil
		}
		from, err := at.Open()
		if err == nil {
			var body []byte
			if body, err = io.ReadAll(from); err == nil {
				got[at.Name[:min(len(at.Name), 9)]] = string(body)
			}
			require.NoError(t, from.Close())
		}
		if err != nil {
			got[at.Name] = "cannot be read"
		}
		return nil
	}))
	none := "cannot be read"
	require.Equal(t, map[string]string{long[:9]: "one two", "id": none, "all": none, "gone": none, "part": none, "linked": none, "a link": "a link", "far": "a link"}, got)
	require.False(t, e.JS.Conn().IsClosed())
}
