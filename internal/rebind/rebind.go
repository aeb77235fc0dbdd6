// Package rebind is for tests: a name that leads elsewhere each time that it is looked up, as in DNS rebinding.
package rebind

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// Resolver asks a name server of its own, on loopback, which ends with the test. Of every name it answers the first
// question with the first address, the second one with the second, and from then on with the last; nothing may be cached.
// Questions are for IPv4 addresses; there are no others.
func Resolver(t testing.TB, addresses ...string) *net.Resolver {
	t.Helper()
	at, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	asked := map[string]int{}
	up := make(chan struct{})
	server := &dns.Server{PacketConn: at, NotifyStartedFunc: func() { close(up) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		if name := q.Question[0].Name; q.Question[0].Qtype == dns.TypeA {
			mu.Lock()
			n := min(asked[name], len(addresses)-1)
			asked[name]++
			mu.Unlock()
			a.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: netip.MustParseAddr(addresses[n]).AsSlice()}}
		}
		_ = w.WriteMsg(a) // who asked asks again
	})}
	done := make(chan error, 1)
	go func() { done <- server.ActivateAndServe() }()
	<-up
	t.Cleanup(func() {
		_ = server.Shutdown() // it was started
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", at.LocalAddr().String())
	}}
}
