package nameserver

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/bcc94042/instar/api/discovery"
)

// page is a catalog of one service.
type page []discovery.Endpoint

func (p page) Find(q discovery.Query) discovery.Result {
	if q.Service != "web" {
		return discovery.Result{}
	}
	return discovery.Result{Endpoints: p, Index: 1, Known: true}
}
func (page) Watch(string, string, uint64) <-chan struct{} { return nil }
func (page) Inhabited(string) bool                        { return true }

// Whatever comes, the answer fits, belongs to the question and can be read; and a question never makes the server larger
// than what its sender is ready to take.
func FuzzPacket(f *testing.F) {
	for _, name := range []string{"web.instar.", "_web._tcp.blue.tag.web.default.instar.", "1.2.version.web.default.instar.", "instar.", "i1.web.default.instar.", "com."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeTXT, dns.TypeSOA, dns.TypeANY} {
			m := new(dns.Msg).SetQuestion(name, qtype)
			plain, _ := m.Pack()
			f.Add(plain)
			m.SetEdns0(900, true)
			wide, _ := m.Pack()
			f.Add(wide)
		}
	}
	all := page{
		{Namespace: "default", Service: "web", InstanceID: "i1", NodeAddress: "10.0.0.1:80", Payload: map[string]string{"a": "b"}, Tags: []string{"blue"}, Weight: 1},
		{Namespace: "default", Service: "web", InstanceID: "i2", NodeAddress: "[::1]:80", Weight: 5},
		{Namespace: "default", Service: "web", InstanceID: "i3", NodeAddress: "a.example:80", Weight: 5},
		{Namespace: "default", Service: "web", InstanceID: "i4", NodeAddress: "nonsense", Weight: 5},
		{Namespace: "default", Service: "web", InstanceID: "i5", NodeAddress: ":99999", Weight: 5},
	}
	h, err := (&Server{Finder: all}).handler()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		question := new(dns.Msg)
		if question.Unpack(packet) != nil || len(question.Question) > 1 {
			return
		}
		r := h.reply(question, 512)
		packed, err := r.Pack()
		if err != nil {
			t.Fatalf("%v\n%s", err, r)
		}
		if len(packed) > 512 {
			t.Fatalf("%d bytes", len(packed))
		}
		if err := new(dns.Msg).Unpack(packed); err != nil {
			t.Fatal(err)
		}
		if !r.Response || r.Id != question.Id {
			t.Fatal("not the answer to the question")
		}
	})
}
