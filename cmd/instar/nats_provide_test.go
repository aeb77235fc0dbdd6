package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/external"
	"github.com/bcc94042/instar/streams/embedded"
)

// That no provider of instances is there is seen from another account, too, and at once.
func TestAProviderOfInstancesThatIsAway(t *testing.T) {
	t.Parallel()
	srv, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: embedded.OS, Users: shipped})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Shutdown(context.Background())) })
	nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo("instar", "secret"))
	require.NoError(t, err)
	defer nc.Close()
	_, err = (&external.Apps{NC: nc}).Look(t.Context(), "default", "tenant-acme-r1")
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "no provider of instances answers")
}

// provides has a provider of instances answer what it is asked. It hears nothing else, and its answers lead to who has asked, and nowhere else.
func (d *doors) provides() {
	t, apps := d.t, &external.Apps{NC: d.own}
	nc := d.connect("provider")
	everything, done := make(chan *nats.Msg, 100), make(chan struct{}, 1)
	_, err := nc.ChanSubscribe(">", everything)
	require.NoError(t, err)
	_, err = nc.Subscribe("instar.provider.instance.*", func(m *nats.Msg) {
		for _, dest := range evil { // as where an answer is to be traced to, of the first one and of further ones
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Trace-Dest": {dest}}, Data: []byte(`{"status":"ready","ready":true,"address":"127.0.0.1:1"}`)})
		}
		done <- struct{}{}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	require.NoError(t, d.own.Publish("instar.hb.default.a.b", nil))
	require.NoError(t, d.own.Publish("instar.provider.other.look", nil))
	d.heard(d.own)
	at, err := apps.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.Equal(t, app.Rollout{Status: "ready", Ready: true, Address: "127.0.0.1:1"}, at)
	<-done
	for _, s := range d.heard(nc) {
		require.NotContains(t, evil, s)
	}
	asked := 0
	for range len(everything) {
		switch s := (<-everything).Subject; {
		case s == "instar.provider.instance.look":
			asked++
		case slices.Contains(evil, s), strings.HasPrefix(s, "_R_."), s == "$JS.EVENT.ADVISORY.API": // its answers, where they were traced to, and that its own account has no JetStream that could do that
		default:
			t.Error("it hears what it is asked, and itself:", s)
		}
	}
	require.Equal(t, 1, asked)
	nc.Close()
}
