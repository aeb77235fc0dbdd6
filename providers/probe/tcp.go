package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// bound is a connection that ends with its context, also when that is cancelled early.
type bound struct {
	net.Conn
	stop func() bool
}

func (b *bound) Close() error {
	b.stop()
	return b.Conn.Close()
}

// connect dials where it may. Whatever is done with the connection ends when ctx does.
func (p *Prober) connect(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := p.guard().Dialer().DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	return &bound{conn, context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })}, nil
}

// tlsConfig is that of a check; own says that it is for the instance, not for where it redirected to.
func tlsConfig(c *instance.Check, host string, own bool) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if own {
		config.InsecureSkipVerify = c.TLSInsecure // asked for, by the one who registered it
		if c.ServerName != "" {
			config.ServerName = c.ServerName
		}
	}
	return config
}

func handshake(ctx context.Context, conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	secured := tls.Client(conn, config)
	return secured, secured.HandshakeContext(ctx)
}

func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func (p *Prober) tcp(ctx context.Context, t *instance.Target, address string) (success, error) {
	conn, err := p.connect(ctx, "tcp", address)
	if err != nil {
		return success{}, err
	}
	defer conn.Close()
	if !t.Check.TLS {
		return success{output: "connected"}, nil
	}
	if _, err := handshake(ctx, conn, tlsConfig(&t.Check, hostOf(address), true)); err != nil {
		return success{}, err
	}
	return success{output: "connected with TLS"}, nil
}

// quiet is how long a refusal of a datagram is waited for when no answer is.
const quiet = 500 * time.Millisecond

// udp sends a datagram. Without an expression to match, an answer passes, and so does none within half a second: only a
// refusal by ICMP tells that nobody listens.
func (p *Prober) udp(ctx context.Context, t *instance.Target, address string) (success, error) {
	conn, err := p.connect(ctx, "udp", address)
	if err != nil {
		return success{}, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(t.Check.Body)); err != nil {
		return success{}, err
	}
	if end := time.Now().Add(quiet); t.Check.Match == "" {
		if d, ok := ctx.Deadline(); !ok || end.Before(d) {
			_ = conn.SetReadDeadline(end)
		}
	}
	buf := make([]byte, maxBody)
	var unmatched error
	for {
		n, err := conn.Read(buf)
		switch {
		case err != nil && t.Check.Match == "" && errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(ctx.Err(), context.Canceled):
			return success{output: "sent, not refused"}, nil
		case err != nil && unmatched != nil && errors.Is(err, os.ErrDeadlineExceeded):
			return success{}, unmatched
		case err != nil:
			return success{}, err
		}
		if unmatched = p.match(t.Check.Match, buf[:n]); unmatched == nil {
			return success{output: "answered"}, nil
		}
	}
}
