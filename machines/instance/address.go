package instance

import (
	"crypto/sha1" // #nosec G505 -- a name-based id (RFC 9562), not a secret
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// idSpace is the name space of ids of instances (RFC 9562, 5.5).
var idSpace = [16]byte{0x0d, 0x5c, 0x1e, 0x6b, 0x97, 0x2a, 0x4f, 0x58, 0xa3, 0x44, 0x7b, 0xe0, 0x21, 0x9d, 0xc6, 0x35}

// InstanceID is the id of what a service has at an address: always the same one, so that a process that registers
// again, or twice, is the next generation of one instance and not another. It is a UUID of version 5. The host is taken
// in lower case, an IPv6 address in its long form.
func InstanceID(namespace, service, nodeAddress string) string {
	if host, port, err := SplitAddress(nodeAddress); err == nil {
		nodeAddress = fmt.Sprintf("%s:%d", canonical(host), port)
	}
	h := sha1.New() // #nosec G401 -- as above
	h.Write(idSpace[:])
	h.Write([]byte(namespace + "/" + service + "/" + nodeAddress))
	u := h.Sum(nil)[:16]
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// The ways in which an address can be wrong.
var (
	errNoPort   = errors.New("is not host:port, such as 10.0.0.7:8080 or [2001:db8::7]:8080")
	errPort     = errors.New("its port must be a number from 1 to 65535")
	errHost     = errors.New("its host is not an IPv4 address, an IPv6 address in brackets, or a DNS name")
	errWildcard = errors.New("its host stands for every address; clients need one that they can connect to")
)

var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)
	numeric  = regexp.MustCompile(`(^|\.)([0-9]+|0[xX][0-9a-fA-F]*)$`) // a name that ends like this is an IPv4 address to browsers and to resolvers of C
	portText = regexp.MustCompile(`^[1-9][0-9]{0,4}$`)
)

// SplitAddress takes host:port apart. The host is an IPv4 address, an IPv6 address (without its brackets) or a DNS
// name, and not one that stands for every address; the port is from 1 to 65535.
func SplitAddress(address string) (host string, port int, err error) {
	colon := strings.LastIndexByte(address, ':')
	if colon < 1 || strings.ContainsAny(address, "/@ \t\r\n\x00") {
		return "", 0, errNoPort
	}
	host, text := address[:colon], address[colon+1:]
	bracketed := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if bracketed {
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		return "", 0, errNoPort
	}
	if err := checkHost(host, bracketed); err != nil {
		return "", 0, err
	}
	port, err = strconv.Atoi(text)
	if err != nil || !portText.MatchString(text) || port > 65535 {
		return "", 0, errPort
	}
	return host, port, nil
}

func checkHost(host string, bracketed bool) error {
	if host == "*" {
		return errWildcard
	}
	if bracketed {
		groups, ok := ipv6(host)
		if ok && (groups == [8]uint16{} || groups == [8]uint16{5: 0xffff}) { // the second is 0.0.0.0, mapped
			return errWildcard
		}
		return orNil(ok)
	}
	if numeric.MatchString(host) {
		quad, ok := ipv4(host)
		if ok && quad == [4]byte{} {
			return errWildcard
		}
		return orNil(ok)
	}
	return orNil(len(host) <= 253 && hostName.MatchString(host))
}

func orNil(ok bool) error {
	if ok {
		return nil
	}
	return errHost
}

// canonical is a valid host in the one form in which it is compared.
func canonical(host string) string {
	if groups, ok := ipv6(host); ok {
		return fmt.Sprintf("%04x", groups)
	}
	return strings.ToLower(host)
}

func ipv4(text string) (quad [4]byte, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != len(quad) {
		return quad, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil || p != strconv.FormatUint(n, 10) {
			return quad, false
		}
		quad[i] = byte(n)
	}
	return quad, true
}

// ipv6 reads an address without a zone: a zone means something on one machine only.
func ipv6(text string) (groups [8]uint16, ok bool) {
	if !strings.Contains(text, ":") {
		return groups, false
	}
	head, tail, short := strings.Cut(text, "::")
	front, ok1 := hextets(head, !short)
	back, ok2 := hextets(tail, true)
	n := len(front) + len(back)
	if !ok1 || !ok2 || short && n > 7 || !short && n != 8 {
		return groups, false
	}
	copy(groups[:], front)
	copy(groups[8-len(back):], back)
	return groups, true
}

// hextets reads groups of hexadecimal digits. The last group of an address may be an IPv4 address.
func hextets(text string, ends bool) ([]uint16, bool) {
	if text == "" {
		return nil, true
	}
	var groups []uint16
	parts := strings.Split(text, ":")
	for i, p := range parts {
		if quad, ok := ipv4(p); ok && ends && i == len(parts)-1 {
			groups = append(groups, uint16(quad[0])<<8|uint16(quad[1]), uint16(quad[2])<<8|uint16(quad[3]))
			continue
		}
		n, err := strconv.ParseUint(p, 16, 16)
		if err != nil || len(p) > 4 {
			return nil, false
		}
		groups = append(groups, uint16(n))
	}
	return groups, true
}
