package relays

import (
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams"
)

// A relay asks the leader of the bucket whether it is wanted, and takes no answer for a no.
func TestARelayAsksWhetherItIsWanted(t *testing.T) {
	t.Parallel()
	srv, err := streams.StartServer(streams.ServerOptions{Dir: t.TempDir(), Profile: streams.OS})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	nc, err := streams.Connect(streams.ConnectOptions{Server: srv, Name: "test"})
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	_, err = streams.Ensure(t.Context(), js, streams.Plan{States: []string{machine.Machine.Plural}})
	require.NoError(t, err)
	bucket, err := js.KeyValue(t.Context(), machine.Machine.Plural)
	require.NoError(t, err)
	o := &outboxes{h: &server.Host{}, js: js}
	for _, state := range []string{machine.Running, machine.Paused} {
		_, err := bucket.PutString(t.Context(), "default.dev", `{"state":"`+state+`"}`)
		require.NoError(t, err)
		err = o.wanted(t.Context(), "dev")
		if state == machine.Running {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "is paused")
		}
	}
	require.Error(t, o.wanted(t.Context(), "nobody"))
}
