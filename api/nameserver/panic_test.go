package nameserver_test

import (
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/nameserver"
	"github.com/bcc94042/instar/internal/panics"
)

// broken panics when it is asked for one service.
type broken struct{ *book }

func (b broken) Find(q discovery.Query) discovery.Result {
	if q.Service == "broken" {
		panic("out of range")
	}
	return b.book.Find(q)
}

func TestAPanicIsOneAnswer(t *testing.T) {
	t.Parallel()
	b := &bundle{book: &book{all: []discovery.Endpoint{web("i", "10.0.0.1:80", "", 1)}}}
	b.addr = run(t, &nameserver.Server{Address: "127.0.0.1:0", Finder: broken{b.book}})
	for _, network := range []string{"udp", "tcp"} {
		before := panics.Counts()["dns"]
		require.Equal(t, dns.RcodeServerFailure, b.ask(t, network, "broken.default.instar.", dns.TypeA).Rcode)
		require.Greater(t, panics.Counts()["dns"], before)
		require.Len(t, b.ask(t, network, "web.default.instar.", dns.TypeA).Answer, 1)
	}
}
