package nameserver

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/bcc94042/instar/api/discovery"
)

// maxRecords are the records of one answer.
const maxRecords = 256

// find looks up what a name asks for, in the order of the answer. known is false when the name does not exist.
func (h *handler) find(w wanted) (places []place, known bool) {
	result := h.finder.Find(discovery.Query{Namespace: w.namespace, Service: w.service, Draining: w.kind == isInstance})
	there := false
	for _, e := range result.Endpoints {
		if w.kind == isInstance && e.InstanceID != w.instance || !matches(e, w) {
			continue
		}
		there = true
		if p, ok := locate(e, w); ok {
			p.distant = w.filter == "zone" && !strings.EqualFold(e.Zone, w.value)
			places = append(places, p)
		}
	}
	shuffle(places)
	if w.filter == "zone" {
		slices.SortStableFunc(places, func(a, b place) int { return rank(a) - rank(b) })
	}
	if w.kind == isInstance {
		return places, there || result.Known && (w.filter == "between" || slices.Contains(filters, w.instance))
	}
	return places, result.Known || w.between == "dns" || w.between != "" && h.finder.Inhabited(w.between)
}

func rank(p place) int {
	if p.distant {
		return 1
	}
	return 0
}

// shuffle orders by chance, the heavier the earlier: each place is first in proportion to its weight (Efraimidis and
// Spirakis). What has no weight is left out of it by the caller.
func shuffle(places []place) {
	keys := make(map[string]float64, len(places))
	for _, p := range places {
		keys[p.InstanceID] = math.Log(1-rand.Float64()) / max(float64(p.Weight), 1e-9)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(keys[b.InstanceID], keys[a.InstanceID]) })
}

// routable leaves out what has no weight, unless nothing has any.
func routable(places []place) []place {
	if !slices.ContainsFunc(places, func(p place) bool { return p.Weight > 0 }) {
		return places
	}
	return slices.DeleteFunc(slices.Clone(places), func(p place) bool { return p.Weight <= 0 })
}

// nearest are those of the zone that was asked for, or all when it has none.
func nearest(places []place) []place {
	for i, p := range places {
		if p.distant {
			if i == 0 {
				break
			}
			return places[:i]
		}
	}
	return places
}

// addresses are the A or AAAA records of places.
func (a *answer) addresses(places []place, qtype uint16) []dns.RR {
	var all []dns.RR
	seen := map[netip.Addr]bool{}
	for _, p := range nearest(places) {
		if !p.ip.IsValid() || seen[p.ip] || len(all) == maxRecords {
			continue
		}
		seen[p.ip] = true
		if rr := a.address(a.name, p.ip); rr.Header().Rrtype == qtype {
			all = append(all, rr)
		}
	}
	return all
}

func (a *answer) address(name string, ip netip.Addr) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: a.header(name, dns.TypeA), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: a.header(name, dns.TypeAAAA), AAAA: ip.AsSlice()}
}

// services are the SRV records of places, and the addresses of their targets.
func (a *answer) services(places []place, domain string) (all, glue []dns.RR) {
	for _, p := range places[:min(len(places), maxRecords)] {
		target := p.host
		if p.ip.IsValid() {
			target = strings.Join([]string{p.InstanceID, p.Service, p.Namespace, domain}, ".")
			glue = append(glue, a.address(target, p.ip))
		}
		all = append(all, &dns.SRV{
			Hdr: a.header(a.name, dns.TypeSRV), Priority: uint16(rank(p)), Weight: uint16(min(max(p.Weight, 0), math.MaxUint16)),
			Port: p.port, Target: target,
		})
	}
	return all, glue
}

// texts are the TXT records of places; equal ones once.
func (a *answer) texts(places []place) []dns.RR {
	var all []dns.RR
	seen := map[string]bool{}
	for _, p := range nearest(places) {
		var pairs []string
		for k, v := range p.Payload {
			if len(k)+len(v)+1 <= math.MaxUint8 {
				pairs = append(pairs, strings.ReplaceAll(k+"="+v, `\`, `\\`))
			}
		}
		slices.Sort(pairs)
		key := strings.Join(pairs, "\x00")
		if len(pairs) == 0 || seen[key] || len(all) == maxRecords {
			continue
		}
		seen[key] = true
		all = append(all, &dns.TXT{Hdr: a.header(a.name, dns.TypeTXT), Txt: pairs})
	}
	return all
}
