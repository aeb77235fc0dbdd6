package nameserver

// What a DNS name asks for, and what DNS can say of an endpoint. handler.go passes the labels below the domain to read, which returns kind, service, namespace and
// filter; answer.go passes each endpoint to matches and locate, which splits its address into IP or host name, and port. The forms of names are listed in doc.go.

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"

	"github.com/bcc94042/instar/api/discovery"
)

// kind is what a name below the domain asks for.
type kind int

const (
	isNothing  kind = iota // no name of ours
	isApex                 // the domain itself
	isServer               // ns.dns.<domain>
	isService              // all that may be routed to, filtered
	isInstance             // one instance
)

// filters are the labels that stand between a value and a service.
var filters = []string{"tag", "version", "zone"}

// wanted is what a name asks for.
type wanted struct {
	kind      kind
	service   string
	namespace string
	instance  string
	port      string // the service or the name of a port; SRV only
	proto     string // tcp or udp, with port
	filter    string // one of filters, or "between" for a name that only has names below it
	value     string
	between   string // the label of a name that has one: if it is a namespace with services, the name exists, because theirs are below it
}

// read parses the labels below the domain, which are in lower case.
func read(labels []string, namespace string) wanted {
	w := wanted{namespace: namespace, kind: isService}
	if len(labels) == 0 {
		return wanted{kind: isApex}
	}
	if len(labels) == 2 && labels[0] == "ns" && labels[1] == "dns" {
		return wanted{kind: isServer}
	}
	if len(labels) > 2 && strings.HasPrefix(labels[0], "_") && (labels[1] == "_tcp" || labels[1] == "_udp") {
		w.port, w.proto = labels[0][1:], labels[1][1:]
		labels = labels[2:]
	}
	if len(labels) > 1 && (labels[0] == "_tcp" || labels[0] == "_udp") {
		labels, w.filter = labels[1:], "between" // a name that only has names below it
	}
	n := len(labels)
	switch n {
	case 1:
		w.service, w.between = labels[0], labels[0]
		return w
	case 2:
		w.service, w.namespace = labels[0], labels[1]
		return w
	}
	w.service, w.namespace = labels[n-2], labels[n-1]
	if n == 3 {
		w.kind, w.instance = isInstance, labels[0]
		return w
	}
	if !slices.Contains(filters, labels[n-3]) {
		w.kind = isNothing
		return w
	}
	if w.filter == "" {
		w.filter, w.value = labels[n-3], strings.Join(labels[:n-3], ".")
	}
	return w
}

// below are the labels of a name below the domain; false when it is not in it. An escaped byte stays escaped, so it
// matches nothing.
func (h *handler) below(name string) ([]string, bool) {
	name = strings.ToLower(name)
	if !dns.IsSubDomain(h.domain, name) {
		return nil, false
	}
	labels := dns.SplitDomainName(name)
	return labels[:len(labels)-h.depth], true
}

// place is an endpoint as DNS can express it.
type place struct {
	discovery.Endpoint
	ip      netip.Addr // invalid for a host name
	host    string
	port    uint16
	distant bool // not in the zone that was asked for
}

// locate splits the node address; false if it is none.
func locate(e discovery.Endpoint, w wanted) (place, bool) {
	i := strings.LastIndexByte(e.NodeAddress, ':')
	if i <= 0 {
		return place{}, false
	}
	host, text := strings.Trim(e.NodeAddress[:i], "[]"), e.NodeAddress[i+1:]
	if w.port != "" && (w.port != w.service || w.proto != "tcp") {
		text = named(e.Payload, "port."+w.port)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return place{}, false
	}
	p := place{Endpoint: e, host: dns.Fqdn(host), port: uint16(port)}
	if ip, err := netip.ParseAddr(host); err == nil {
		p.ip = ip.Unmap().WithZone("")
	} else if _, ok := dns.IsDomainName(p.host); !ok || p.host == "." {
		return place{}, false
	}
	return p, true
}

// named is a value of the payload whose key is the name in any case; of several the first by their order.
func named(payload map[string]string, name string) string {
	if v, ok := payload[name]; ok {
		return v
	}
	found := ""
	for k := range payload {
		if strings.EqualFold(k, name) && (found == "" || k < found) {
			found = k
		}
	}
	if found == "" {
		return ""
	}
	return payload[found]
}

// matches says whether an endpoint passes the filter of a name.
func matches(e discovery.Endpoint, w wanted) bool {
	switch w.filter {
	case "tag":
		for _, tag := range e.Tags {
			if strings.EqualFold(tag, w.value) {
				return true
			}
		}
		return false
	case "version":
		return strings.EqualFold(e.Version, w.value)
	case "between":
		return false
	}
	return true
}
