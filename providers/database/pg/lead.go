package pg

import (
	"crypto/tls"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Lead points a configuration to another server (host:port), which is tried with and without TLS as its first one was; that has no other servers. A socket has no TLS, so its text says whether another server has it.
func Lead(c *pgx.ConnConfig, address string) error {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return err
	}
	port := uint16(number)
	if network, _ := pgconn.NetworkAddress(c.Host, c.Port); network == "unix" {
		own, err := pgx.ParseConfig(elsewhere(c.ConnString(), host, port))
		if err != nil {
			return err
		}
		c.Host, c.Port, c.TLSConfig, c.Fallbacks = own.Host, own.Port, own.TLSConfig, own.Fallbacks
		return nil
	}
	c.Fallbacks = slices.DeleteFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
	c.Host, c.Port = host, port
	all := []*tls.Config{c.TLSConfig}
	for _, f := range c.Fallbacks {
		f.Host, f.Port = host, port
		all = append(all, f.TLSConfig)
	}
	for _, t := range all {
		if t != nil {
			t.ServerName = host
		}
	}
	return nil
}

// elsewhere is the text of a connection with another host.
func elsewhere(text, host string, port uint16) string {
	number := strconv.Itoa(int(port))
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return text + " host=" + host + " port=" + number // the last one counts
	}
	u, err := url.Parse(text)
	if err != nil {
		return text // it could not have been read before
	}
	q := u.Query()
	q.Del("host")
	q.Del("port")
	u.Host, u.RawQuery = net.JoinHostPort(host, number), q.Encode()
	return u.String()
}
