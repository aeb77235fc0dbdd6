package tenants

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

// hall is a door with the sessions of an index, of which put stores one.
type hall struct {
	*streamstest.Env
	*door
	sessions *kv.Bucket[map[string]any]
}

func setupHall(t *testing.T) *hall {
	t.Helper()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	for _, name := range []string{AdmittedBucket, "sessions"} {
		require.NoError(t, streams.EnsureBucket(t.Context(), e.JS, name, "", 0, 1))
	}
	admitted, err := kv.Open(t.Context(), e.JS, AdmittedBucket, kv.JSON[entrant]())
	require.NoError(t, err)
	sessions, err := kv.Open(t.Context(), e.JS, "sessions", kv.JSON[map[string]any]())
	require.NoError(t, err)
	ix := index.New(e.JS, "sessions", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- ix.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	<-ix.Ready()
	d := &door{takes: func(context.Context, *machine.RequestBody) error { return nil }, kinds: map[string]*Sessions{}, admitted: admitted}
	d.share(Sessions{Machine: machine.Machine, Index: ix, Asks: asks})
	return &hall{e, d, sessions}
}

// put stores a session, and returns when the index has it.
func (h *hall) put(key, state string, version, revision uint64) uint64 {
	h.T.Helper()
	at, err := h.sessions.Put(h.T.Context(), key, map[string]any{"schema": 1, "state": state, "version": version}, revision)
	require.NoError(h.T, err)
	h.Eventually(fmt.Sprintf("the index has version %d of %s", version, key), func() bool {
		item, _ := h.kinds[machine.Machine.Name].Index.Get(key)
		return item.Version == version
	})
	return at
}

func requested(key string) publish.Command {
	return publish.Command{Machine: machine.Machine.Name, Key: key, Name: machine.CommandRequest, Body: []byte(`{}`)}
}

// A request that was only asked about keeps nobody out, unless its session was let in a moment before.
func TestADryRunShutsNoDoor(t *testing.T) {
	t.Parallel()
	h := setupHall(t)
	one, other := requested("default.acme.one"), requested("default.acme.other")
	require.NoError(t, h.admit(one))
	require.ErrorContains(t, h.admit(other), "default.acme.one has the tenant acme and is being requested")
	h.withdraw(other) // which was not let in
	require.ErrorContains(t, h.admit(other), "is being requested")
	h.withdraw(one)
	require.NoError(t, h.admit(other))
	require.NoError(t, h.admit(other), "a dry run of the same")
	h.withdraw(other)
	require.ErrorContains(t, h.admit(one), "default.acme.other has the tenant acme and is being requested")
}

// A session that begins anew has the tenant, whatever the end of its life before is.
func TestAnEarlierEndOpensNoDoor(t *testing.T) {
	t.Parallel()
	h := setupHall(t)
	one, other := requested("default.acme.one"), requested("default.acme.other")
	at := h.put(one.Key, machine.Copying, 3, 0)
	require.NoError(t, h.admit(one), "it has ended, and this node has not heard of that")
	h.put(one.Key, machine.RolledBack, 9, at)
	require.ErrorContains(t, h.admit(other), "default.acme.one has the tenant acme and is being requested")
}

// A tenant is held against all namespaces, and none learns of another one by that: neither while it is requested nor afterwards.
func TestASessionOfAnotherNamespaceIsNotNamed(t *testing.T) {
	t.Parallel()
	h := setupHall(t)
	one, foreign := requested("other.acme.move"), requested("default.acme.mine")
	require.NoError(t, h.admit(one))
	for _, version := range []uint64{0, 3} {
		if version > 0 {
			h.put(one.Key, machine.Copying, version, 0)
		}
		err := h.admit(foreign)
		require.ErrorContains(t, err, "another session has the tenant acme; a tenant has one session at a time")
		require.NotContains(t, err.Error(), "other.")
		require.NotContains(t, err.Error(), machine.Copying)
		require.ErrorContains(t, h.admit(requested("other.acme.again")), "session other.acme.move has the tenant acme")
	}
}
