package probe

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/rebind"
	"github.com/bcc94042/instar/machines/instance"
)

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	at := raw(t, func(net.Conn, <-chan struct{}) {})
	_, port, _ := net.SplitHostPort(at)
	own := func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(at)} }
	private := netip.MustParsePrefix("10.0.0.0/8")
	for _, s := range []struct {
		address string
		opts    Options
		ok      bool
	}{
		{at, Options{}, true},
		{"169.254.169.254:80", Options{}, false},
		{"169.254.1.1:80", Options{Allow: prefixes("169.254.1.0/24")}, true},
		{"169.254.1.1:80", Options{Allow: prefixes("169.254.1.0/24"), Deny: prefixes("169.254.1.1/32")}, false},
		{"[fe80::1]:80", Options{}, false},
		{"[::ffff:169.254.169.254]:80", Options{}, false},
		{"[64:ff9b::a9fe:a9fe]:80", Options{}, false},
		{"[2002:a9fe:a9fe::1]:80", Options{}, false},
		{"[fd00:ec2::254]:80", Options{}, false},
		{"100.100.100.200:80", Options{}, false},
		{"0.0.0.0:80", Options{}, false},
		{"[::]:80", Options{}, false},
		{"224.0.0.1:80", Options{}, false},
		{"[ff02::1]:80", Options{}, false},
		{"255.255.255.255:80", Options{}, false},
		{"10.1.2.3:80", Options{}, true},
		{"10.1.2.3:80", Options{Deny: []netip.Prefix{private}}, false},
		{at, Options{Deny: prefixes("127.0.0.0/8")}, false},
		{at, Options{Own: own}, false},
		{"[::ffff:127.0.0.1]:" + port, Options{Own: func() []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort("[::]:" + port)} }}, false},
		{"10.1.2.3:" + port, Options{Own: own}, true},
		{"127.0.0.1:81", Options{Own: own}, true},
	} {
		p := &Prober{Options: s.opts}
		for _, typ := range []string{instance.CheckHTTP, instance.CheckTCP, instance.CheckGRPC, instance.CheckUDP} {
			err := p.Admit(instance.Check{Type: typ}, s.address)
			require.Equal(t, s.ok, err == nil, "%s %s: %v", typ, s.address, err)
			if !s.ok {
				r := check(t, p, s.address, instance.Check{Type: typ})
				require.Equal(t, instance.FailedForbidden, r.Class, "%s %s: %s", typ, s.address, r.Output)
			}
		}
	}
}

// A name passes at the door, wherever it leads; the connection is refused.
func TestNamesAreCheckedWhereTheyLead(t *testing.T) {
	t.Parallel()
	at := raw(t, func(net.Conn, <-chan struct{}) {})
	_, port, _ := net.SplitHostPort(at)
	p := &Prober{Options: Options{Deny: prefixes("127.0.0.0/8", "::1/128")}}
	require.NoError(t, p.Admit(instance.Check{Type: instance.CheckTCP}, "localhost:"+port))
	require.Equal(t, instance.FailedForbidden, check(t, p, "localhost:"+port, instance.Check{Type: instance.CheckTCP}).Class)
}

// The name of an instance leads to it when it is registered, and elsewhere when it is probed again. Each connection is
// judged by where it goes.
func TestRebinding(t *testing.T) {
	t.Parallel()
	at := raw(t, func(net.Conn, <-chan struct{}) {})
	_, port, _ := net.SplitHostPort(at)
	for _, to := range []string{"169.254.169.254", "100.100.100.200", "127.0.0.2"} {
		p := &Prober{Options: Options{Deny: prefixes("127.0.0.2/32")}, resolver: rebind.Resolver(t, "127.0.0.1", to)}
		require.NoError(t, p.Admit(instance.Check{Type: instance.CheckTCP}, "inside.example:"+port))
		require.True(t, check(t, p, "inside.example:"+port, instance.Check{Type: instance.CheckTCP}).OK)
		for _, typ := range []string{instance.CheckTCP, instance.CheckHTTP, instance.CheckGRPC, instance.CheckUDP} {
			r := check(t, p, "inside.example:"+port, instance.Check{Type: typ})
			require.Equal(t, instance.FailedForbidden, r.Class, "%s to %s: %s", typ, to, r.Output)
		}
	}
}

// What a browser or a resolver of C takes for an address of IPv4 although it is not written as one leads nowhere: nobody
// registers it, and no probe finds its way by it.
func TestAddressesInDisguise(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"2852039166", "0xA9FEA9FE", "0xa9.0xfe.0xa9.0xfe", "169.254.0xa9fe", "0177.0.0.1", "127.1", "0x7f.1", "017700000001", "0x7f000001", "0x", "1.0x"} {
		_, _, err := instance.SplitAddress(host + ":80")
		require.Error(t, err, host)
		r := check(t, &Prober{resolver: rebind.Resolver(t, "169.254.169.254")}, host+":80", instance.Check{Type: instance.CheckHTTP})
		require.Contains(t, []string{instance.FailedForbidden, instance.FailedResolve}, r.Class, "%s: %s", host, r.Output)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	p := &Prober{Options: Options{AnyRequest: true, Match: true}}
	for _, s := range []struct {
		check   instance.Check
		address string
		want    string
	}{
		{instance.Check{Type: instance.CheckHTTP, Path: "/a?b", Match: "a+", Headers: map[string]string{"Host": "a.b:80", "X-A": "b c"}}, "web:80", ""},
		{instance.Check{Type: instance.CheckTTL}, "anything", ""},
		{instance.Check{Type: instance.CheckHTTP, Path: "a"}, "web:80", "begin with /"},
		{instance.Check{Type: instance.CheckHTTP, Path: "/%zz"}, "web:80", "invalid URL escape"},
		{instance.Check{Type: instance.CheckHTTP, Match: "("}, "web:80", "missing closing"},
		{instance.Check{Type: instance.CheckHTTP, Headers: map[string]string{"X A": "b"}}, "web:80", "not valid"},
		{instance.Check{Type: instance.CheckHTTP, Headers: map[string]string{"X": "b\r\nY: c"}}, "web:80", "not valid"},
		{instance.Check{Type: instance.CheckHTTP, Headers: map[string]string{"host": "a/b"}}, "web:80", "not valid"},
		{instance.Check{Type: instance.CheckTCP}, "web", "not host:port"},
		{instance.Check{Type: instance.CheckTCP}, "web:http", "not host:port"},
		{instance.Check{Type: instance.CheckTCP}, ":80", "not host:port"},
		{instance.Check{Type: instance.CheckScript, Command: []string{"true"}}, "web:80", "not enabled"},
	} {
		err := p.Admit(s.check, s.address)
		if s.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, s.want)
	}
	require.ErrorContains(t, (&Prober{Options: Options{Scripts: true}}).Admit(instance.Check{Type: instance.CheckScript}, "web:80"), "needs a command")
}
