package api_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// Users of NATS who are not the control plane's are told apart by what the server says of them, whatever they say themselves.
func TestUsersOfNATSHaveSharesOfTheirOwn(t *testing.T) {
	t.Parallel()
	user := func(name, role string) embedded.User {
		return embedded.User{Name: name, Password: "secret", Role: role}
	}
	srv, err := embedded.Start(embedded.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Profile: embedded.OS, Users: []embedded.User{user("ann", embedded.RoleRead), user("bob", embedded.RoleRead), user("ci", embedded.RoleOperate)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = srv.Shutdown(t.Context()) })
	own, err := streams.Connect(streams.ConnectOptions{Server: srv, Name: "own"})
	require.NoError(t, err)
	t.Cleanup(own.Close)
	svc, err := micro.AddService(own, micro.Config{Name: "who", Version: "1.0.0", Endpoint: &micro.EndpointConfig{
		Subject: "instar.api.get.>", Handler: micro.HandlerFunc(func(r micro.Request) { _ = r.Respond([]byte(api.NATSClient(r.Reply(), nats.Header(r.Headers())))) }),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = svc.Stop() })
	require.NoError(t, own.Flush()) // the server knows the subscription before users of other accounts ask
	for name, want := range map[string]string{"ann": "account READERS ann", "bob": "account READERS bob", "ci": "account USER_ci ci"} {
		nc, err := nats.Connect(srv.ClientURL(), nats.UserInfo(name, "secret"))
		require.NoError(t, err)
		for _, header := range []nats.Header{nil, {"Nats-Request-Info": {`{"acc":"READERS","user":"somebody else"}`}}} {
			m, err := nc.RequestMsg(&nats.Msg{Subject: "instar.api.get.gadget.default.x", Header: header}, soon)
			require.NoError(t, err)
			require.Equal(t, want, string(m.Data))
			require.Equal(t, want, "account "+user(name, map[bool]string{true: embedded.RoleOperate, false: embedded.RoleRead}[name == "ci"]).Account()+" "+name)
		}
		nc.Close()
	}
}
