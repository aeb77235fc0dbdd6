package domains

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/problem"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/publish"
)

// A session leads and removes what has its label.
func TestTheLabelsOfTheServerAreItsOwn(t *testing.T) {
	t.Parallel()
	d := &door{refuses: func(string) string { return "" }, reaches: func(netip.AddrPort) error { return nil }}
	bind := func(labels map[string]string) error {
		body, err := json.Marshal(machine.BindBody{Host: "shop.example.com", Route: machine.Route{Targets: []machine.Target{{Address: "10.0.0.7:8080"}}}, Labels: labels})
		require.NoError(t, err)
		return d.admit(publish.Command{Machine: machine.Machine.Name, Key: "default.acme.shop", Name: machine.CommandBind, Body: body})
	}
	require.NoError(t, bind(map[string]string{"team": "web", "instar.example.com/session": "own"}))
	var no *problem.Problem
	require.ErrorAs(t, bind(map[string]string{"team": "web", "instar/session": "own"}), &no)
	require.Equal(t, http.StatusUnprocessableEntity, no.Status)
	require.Equal(t, "body.labels.instar/session", no.Errors[0].Location)
}

// A request to bind may come to the node that the target runs on, or to any other: all refuse the same.
func TestATargetOnANodeOfTheClusterIsNotRefused(t *testing.T) {
	t.Parallel()
	own := []netip.AddrPort{netip.MustParseAddrPort("[::]:7080")}
	g := guard.Guard{Elsewhere: true, Own: func() []netip.AddrPort { return own }}
	here, anywhere := reaching(g, func(at netip.AddrPort) bool { return at.Port() == 9001 })
	for _, at := range []string{"127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80", "169.254.169.254:80"} {
		require.ErrorIs(t, anywhere(netip.MustParseAddrPort(at)), guard.ErrForbidden, at)
	}
	require.NoError(t, anywhere(netip.MustParseAddrPort("127.0.0.1:9001")), "where a release is")
	own = append(own, netip.MustParseAddrPort("127.0.0.1:9001"))
	require.ErrorIs(t, anywhere(netip.MustParseAddrPort("127.0.0.1:9001")), guard.ErrForbidden, "where it should be")
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		ip := netip.MustParsePrefix(a.String()).Addr()
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		for _, port := range []uint16{80, 7080} {
			at := netip.AddrPortFrom(ip, port)
			require.ErrorIs(t, here(at), guard.ErrForbidden, at)
			require.NoError(t, anywhere(at), at)
		}
	}
	_, anywhere = reaching(guard.Guard{Only: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, func(netip.AddrPort) bool { return false })
	require.NoError(t, anywhere(netip.MustParseAddrPort("10.0.0.7:80")))
	require.ErrorIs(t, anywhere(netip.MustParseAddrPort("192.0.2.1:80")), guard.ErrForbidden)
}

// What served before it was refused can be drained.
func TestATargetThatIsDrainedIsNotRefused(t *testing.T) {
	t.Parallel()
	_, anywhere := reaching(guard.Guard{Elsewhere: true}, func(netip.AddrPort) bool { return false })
	d := &door{reaches: anywhere}
	retarget := func(old, next int) error {
		body, err := json.Marshal(machine.RetargetBody{Route: machine.Route{Targets: []machine.Target{{Address: "127.0.0.1:80", Weight: old}, {Address: "10.0.0.7:80", Weight: next}}}})
		require.NoError(t, err)
		return d.admit(publish.Command{Machine: machine.Machine.Name, Key: "default.acme.shop", Name: machine.CommandRetarget, Body: body})
	}
	require.NoError(t, retarget(0, 100))
	for _, refused := range []error{retarget(1, 100), retarget(0, 0)} {
		var no *problem.Problem
		require.ErrorAs(t, refused, &no)
		require.Equal(t, "body.route.targets[0].address", no.Errors[0].Location)
	}
}

func TestReleasesRunWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	p := config.Platform{Domain: "apps.example.net", Host: "127.0.0.1", Ports: "20000-29999"}
	for at, want := range map[string]bool{"127.0.0.1:20000": true, "[::ffff:127.0.0.1]:29999": true, "127.0.0.1:30000": false, "127.0.0.2:20000": false} {
		require.Equal(t, want, runs(&p)(netip.MustParseAddrPort(at)), at)
	}
	require.False(t, runs(&config.Platform{Host: p.Host, Ports: p.Ports})(netip.MustParseAddrPort("127.0.0.1:20000")))
}
