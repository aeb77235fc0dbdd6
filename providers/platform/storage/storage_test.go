package storage_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
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
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
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
	again := nats.NewMsg("$O.tenant-acme.C.again")
	again.Data = []byte("again ")
	again.Header.Set("Nats-Sequence", "0")
	_, err = e.JS.PublishMsg(t.Context(), again)
	require.NoError(t, err)
	last := nats.NewMsg("$O.tenant-acme.C.last")
	last.Header.Set("Nats-Sequence", "18446744073709551615")
	_, err = e.JS.PublishMsg(t.Context(), last)
	require.NoError(t, err)
	twice := sha256.Sum256([]byte("again again "))
	for subject, info := range map[string]jetstream.ObjectInfo{
		"again":        {ObjectMeta: jetstream.ObjectMeta{Name: "again"}, NUID: "again", Size: 12, Digest: "SHA-256=" + base64.URLEncoding.EncodeToString(twice[:])},
		"last":         {ObjectMeta: jetstream.ObjectMeta{Name: "last"}, NUID: "last", Size: 12},
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
	require.Equal(t, map[string]string{long[:9]: "one two", "again": none, "last": none, "id": none, "all": none, "gone": none, "part": none, "linked": none, "a link": "a link", "far": "a link"}, got)
	require.False(t, e.JS.Conn().IsClosed())
}

// choking is a server whose connections give nothing more to their client when what they may give is used up.
type choking struct {
	*embedded.Server
	armed atomic.Bool
	gives atomic.Int64 // bytes, once it is armed
}

type choked struct {
	net.Conn
	by     *choking
	closed chan struct{}
}

func (c *choking) InProcessConn() (net.Conn, error) {
	conn, err := c.Server.InProcessConn()
	return &choked{conn, c, make(chan struct{})}, err
}

func (c *choked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.by.armed.Load() && c.by.gives.Add(-int64(n)) < 0 {
		<-c.closed
	}
	return n, err
}

func (c *choked) Close() error {
	defer close(c.closed)
	return c.Conn.Close()
}

// What was asked of a server that dies is answered by nobody, and the client would wait for it as long as its effect may take.
func TestABucketOfWhichNothingComesIsGivenUp(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	made, err := (&storage.ObjectStores{JS: e.JS}).Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	store, err := e.JS.ObjectStore(t.Context(), made.Name)
	require.NoError(t, err)
	_, err = store.PutBytes(t.Context(), "large", make([]byte, 8<<20))
	require.NoError(t, err)
	for i := range 200 {
		_, err = e.JS.Publish(t.Context(), fmt.Sprintf("$O.tenant-acme.M.%d", i), []byte(`{"name":"empty"}`))
		require.NoError(t, err)
	}
	for when, c := range map[string]struct{ bucket, open, body bool }{"it is listed": {bucket: true}, "an object is asked for": {open: true}, "it is read": {body: true}} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			server := &choking{Server: e.Server}
			chokes := func(now bool, after int64) {
				if now {
					server.gives.Store(after)
					server.armed.Store(true)
				}
			}
			nc, err := nats.Connect("", nats.InProcessServer(server), nats.UserInfo(e.Server.Credentials()))
			require.NoError(t, err)
			t.Cleanup(nc.Close)
			js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // as an effect has
			defer cancel()
			o := &storage.ObjectStores{JS: opens{js, func() { chokes(c.bucket, 8<<10) }}, Patience: time.Second}
			err = o.Read(ctx, made, func(at storage.Object) error {
				if at.Name == "empty" {
					return nil
				}
				chokes(c.open, 0)
				from, err := at.Open()
				if err != nil {
					return err
				}
				chokes(c.body, 1<<20)
				_, err = io.Copy(io.Discard, from)
				return errors.Join(err, from.Close())
			})
			require.True(t, providers.IsUnavailable(err), "%v", err)
			require.ErrorContains(t, err, "the bucket tenant-acme")
		})
	}
}

// opens tells when the list of a bucket begins.
type opens struct {
	jetstream.JetStream
	opened func()
}

func (o opens) CreateConsumer(ctx context.Context, stream string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	defer o.opened()
	return o.JetStream.CreateConsumer(ctx, stream, c)
}

// A list leaves no consumer, goes on with another one where that is lost, and fails beside a bucket that is removed.
func TestAListEndsWithWhatItMakes(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	o := &storage.ObjectStores{JS: e.JS, Patience: 2 * time.Second}
	made, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	for i := range 1200 {
		_, err := e.JS.Publish(t.Context(), fmt.Sprintf("$O.tenant-acme.M.%d", i), fmt.Appendf(nil, `{"name":"n%d"}`, i))
		require.NoError(t, err)
	}
	objects, err := o.Objects(t.Context(), made.Name, "o")
	require.NoError(t, err)
	n := 0
	require.NoError(t, objects.Each(t.Context(), func(*jetstream.ObjectInfo) { n++ }))
	require.Equal(t, 1200, n)
	st, err := e.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	require.Zero(t, st.CachedInfo().State.Consumers)

	n = 0
	require.NoError(t, objects.Each(t.Context(), func(*jetstream.ObjectInfo) {
		if n++; n == 1 { // of what is written anew meanwhile, the last word comes
			_, err := e.JS.PublishMsg(t.Context(), &nats.Msg{Subject: "$O.tenant-acme.M.1199", Data: []byte(`{"name":"n1199"}`), Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}})
			require.NoError(t, err)
		}
	}))
	require.Equal(t, 1200, n)

	n = 0
	require.NoError(t, objects.Each(t.Context(), func(*jetstream.ObjectInfo) {
		if n++; n == 600 { // what reads it is lost with its node
			for name := range st.ConsumerNames(t.Context()).Name() {
				require.NoError(t, st.DeleteConsumer(t.Context(), name))
			}
		}
	}))
	require.Equal(t, 1200, n)

	n = 0
	require.Error(t, objects.Each(t.Context(), func(*jetstream.ObjectInfo) {
		if n++; n == 1 {
			require.NoError(t, o.Delete(t.Context(), "tenant-acme", "o"))
		}
	}))
	require.Less(t, n, 1200)
}

// What is no description of an object is told, with the way to be rid of it; an export without what it stood for would be taken for whole. So is what has more than there is, which would fill a disk.
func TestAListThatCannotBeIsNoList(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	o := &storage.ObjectStores{JS: e.JS}
	for says, c := range map[string]struct{ name, info string }{
		"it (nats stream rmm OBJ_tenant-words 2)":                {"words", "no words of an object store"},
		"are said to have 1152921504606846976 bytes, and all of": {"large", `{"name":"a","nuid":"one","size":1152921504606846976}`},
		`the largest are "a", "b"`:                               {"named", `{"name":"a","nuid":"one","size":1152921504606846976}`},
	} {
		made, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-" + c.name, Owner: "o"})
		require.NoError(t, err)
		for i, info := range []string{`{"name":"b","nuid":"two","size":1}`, c.info} {
			_, err = e.JS.Publish(t.Context(), fmt.Sprintf("$O.%s.M.%d", made.Name, i), []byte(info))
			require.NoError(t, err)
		}
		require.ErrorContains(t, o.Read(t.Context(), made, func(storage.Object) error { return errors.New("there is none") }), says)
	}
}

// A client that renames an object writes it under the new name, and removes the old one then: where it was killed in between, both have the same parts.
func TestAnObjectThatWasBeingRenamedHasTwoNames(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	o := &storage.ObjectStores{JS: e.JS}
	made, err := o.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "o"})
	require.NoError(t, err)
	store, err := e.JS.ObjectStore(t.Context(), made.Name)
	require.NoError(t, err)
	info, err := store.PutBytes(t.Context(), "old", make([]byte, 1<<20))
	require.NoError(t, err)
	rename := func(name string) {
		info.Name = name
		raw, err := json.Marshal(info)
		require.NoError(t, err)
		_, err = e.JS.Publish(t.Context(), "$O."+made.Name+".M."+base64.URLEncoding.EncodeToString([]byte(name)), raw)
		require.NoError(t, err)
	}
	rename("new")
	got := map[string]int64{}
	read := func(at storage.Object) error {
		from, err := at.Open()
		if err != nil {
			return err
		}
		got[at.Name], err = io.Copy(io.Discard, from)
		return errors.Join(err, from.Close())
	}
	require.NoError(t, o.Read(t.Context(), made, read))
	require.Equal(t, map[string]int64{"old": 1 << 20, "new": 1 << 20}, got)
	for i := range 15 {
		rename(fmt.Sprintf("more-%02d", i))
	}
	require.ErrorContains(t, o.Read(t.Context(), made, read), `17 of its objects have the same parts ("`+info.NUID+`"), and 16 may: remove some, as "more-00", "more-01", "more-02"`)
}
