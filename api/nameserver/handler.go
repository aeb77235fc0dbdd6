package nameserver

// From one DNS question to its answer. The servers that server.go starts call ServeDNS for each message; reply reads the name (name.go), finds endpoints and makes
// records of them (answer.go), and adds the rest: response code, SOA, glue, and errors that say what is stale. The answer fits into the size that the client takes.

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/internal/panics"
)

// handler answers questions. It holds nothing between them.
type handler struct {
	domain    string // lower case, with the last dot
	depth     int    // labels of domain
	namespace string
	ttl       uint32
	finder    discovery.Finder
	stale     func() time.Duration
	addresses []netip.Addr
	log       *slog.Logger
}

// answer is one answer being made.
type answer struct {
	*dns.Msg
	name   string // as it was asked, case and all
	ttl    uint32
	absent uint32 // for how long "not there" may be remembered
}

func (a *answer) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: a.ttl}
}

// ServeDNS implements [dns.Handler].
func (h *handler) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	size := dns.MaxMsgSize
	if w.LocalAddr().Network() == "udp" {
		size = dns.MinMsgSize
		if opt := question.IsEdns0(); opt != nil {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		}
	}
	// A connection of TCP has as many questions answered as come, one after the other, however many were sent at once (RFC
	// 7766, 6.2.1.1). It ends when it is idle, and when an answer cannot be written in time: a client that reads none would
	// hold it otherwise, one timeout after the other. Over UDP the client asks again.
	if w.WriteMsg(h.safely(question, size)) != nil {
		_ = w.Close()
	}
}

// safely is reply, or SERVFAIL after a panic: then the client may ask another server.
func (h *handler) safely(question *dns.Msg, size int) (a *dns.Msg) {
	defer func() {
		if p := recover(); p != nil {
			panics.Caught(h.log, "dns", p)
			a = new(dns.Msg).SetRcode(question, dns.RcodeServerFailure)
		}
	}()
	return h.reply(question, size)
}

// reply is the whole answer, of at most size bytes.
func (h *handler) reply(question *dns.Msg, size int) *dns.Msg {
	a := &answer{Msg: new(dns.Msg), ttl: h.ttl, absent: h.ttl}
	a.SetReply(question)
	a.RecursionAvailable, a.Compress = false, true
	a.Extra = nil
	opt := question.IsEdns0()
	if opt != nil {
		a.SetEdns0(maxUDP, opt.Do())
	}
	if len(question.Question) != 1 {
		a.Rcode, a.Question = dns.RcodeFormatError, nil
		return a.Msg
	}
	q := question.Question[0]
	a.name = q.Name
	labels, ours := h.below(q.Name)
	switch {
	case opt != nil && opt.Version() != 0:
		a.Rcode = dns.RcodeBadVers
	case question.Opcode != dns.OpcodeQuery:
		a.Rcode = dns.RcodeNotImplemented
	case q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR || !ours:
		a.Rcode = dns.RcodeRefused
	default:
		h.answer(a, q.Qtype, read(labels, h.namespace), size)
	}
	a.Truncate(size)
	a.Compress = true
	return a.Msg
}

// answer fills in what is known under the name.
func (h *handler) answer(a *answer, qtype uint16, w wanted, size int) {
	a.Authoritative = true
	stale := h.stale()
	fresh := stale == 0
	if !fresh {
		a.ttl, a.absent = staleTTL, min(a.absent, absentTTL)
	}
	known := true
	var glue []dns.RR
	switch w.kind {
	case isApex:
		glue = h.apex(a, qtype)
	case isServer:
		for _, ip := range h.addresses {
			if rr := a.address(a.name, ip.Unmap()); rr.Header().Rrtype == qtype {
				a.Answer = append(a.Answer, rr)
			}
		}
	case isService, isInstance:
		var places []place
		places, known = h.find(w)
		glue = h.fill(a, qtype, w, places)
	default:
		known = false
	}
	switch {
	case !known && !fresh, stale > maxStale:
		a.Answer, glue = nil, nil
		a.Rcode, a.Authoritative = dns.RcodeServerFailure, false
		a.explain(dns.ExtendedErrorCodeNotReady)
		return
	case !fresh:
		a.explain(dns.ExtendedErrorCodeStaleAnswer)
	case !known:
		a.Rcode = dns.RcodeNameError
	}
	if known && qtype == dns.TypeANY { // a minimal answer, as in RFC 8482, 4.2
		a.Answer = []dns.RR{&dns.HINFO{Hdr: a.header(a.name, dns.TypeHINFO), Cpu: "RFC8482"}}
	}
	if len(a.Answer) == 0 {
		a.Ns = []dns.RR{h.soa(a, h.domain)}
	}
	a.squeeze(glue, size)
}

// fill adds the records of places.
func (h *handler) fill(a *answer, qtype uint16, w wanted, places []place) (glue []dns.RR) {
	if w.kind == isService {
		places = routable(places)
	}
	switch {
	case qtype == dns.TypeSRV:
		a.Answer, glue = a.services(places, h.domain)
	case w.port != "": // a name of a port has nothing but SRV
	case qtype == dns.TypeA || qtype == dns.TypeAAAA:
		a.Answer = a.addresses(places, qtype)
	case qtype == dns.TypeTXT:
		a.Answer = a.texts(places)
	}
	return glue
}

// apex answers for the domain itself.
func (h *handler) apex(a *answer, qtype uint16) (glue []dns.RR) {
	switch qtype {
	case dns.TypeSOA:
		a.Answer = []dns.RR{h.soa(a, a.name)}
	case dns.TypeNS:
		a.Answer = []dns.RR{&dns.NS{Hdr: a.header(a.name, dns.TypeNS), Ns: h.host()}}
		for _, ip := range h.addresses {
			glue = append(glue, a.address(h.host(), ip.Unmap()))
		}
	}
	return glue
}

func (h *handler) host() string { return "ns.dns." + h.domain }

// soa says how long "not there" may be remembered. Its serial is the catalog's revision.
func (h *handler) soa(a *answer, name string) dns.RR {
	serial := uint32(h.finder.Find(discovery.Query{Namespace: h.namespace}).Index) // wraps around, as serials do
	hdr := a.header(name, dns.TypeSOA)
	hdr.Ttl = a.absent
	return &dns.SOA{
		Hdr: hdr, Ns: h.host(), Mbox: "hostmaster." + h.domain,
		Serial: serial, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: a.absent,
	}
}

// explain adds an extended error for clients that speak EDNS.
func (a *answer) explain(code uint16) {
	if opt := a.IsEdns0(); opt != nil {
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: code})
	}
}

// squeeze adds as much glue as there is room for. An answer that lacks some is not marked as truncated (TC).
func (a *answer) squeeze(glue []dns.RR, size int) {
	room := size - a.Len()
	for _, rr := range glue {
		if room -= dns.Len(rr); room < 0 {
			return
		}
		a.Extra = append(a.Extra, rr)
	}
}
