//go:build linux

package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/bcc94042/instar/machines/service"
)

// client asks processes on loopback: never through a proxy, never along a redirect, never on an old connection.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// patience is a probe's values with their defaults.
type patience struct {
	period, timeout, startup time.Duration
	failures                 int
}

func patienceOf(p service.Probe) patience {
	return patience{
		period:   time.Duration(cmp.Or(p.PeriodMillis, 1000)) * time.Millisecond,
		timeout:  time.Duration(cmp.Or(p.TimeoutMillis, 1000)) * time.Millisecond,
		startup:  time.Duration(cmp.Or(p.StartupSeconds, 30)) * time.Second,
		failures: cmp.Or(p.Failures, 3),
	}
}

// probes are the ways to ask for health, by the type of the probe.
var probes = map[string]func(ctx context.Context, p service.Probe, address string) error{
	service.ProbeHTTP: probeHTTP,
	service.ProbeTCP:  probeTCP,
}

// probe asks for health once.
func probe(ctx context.Context, p service.Probe, address string) error {
	ctx, cancel := context.WithTimeout(ctx, patienceOf(p).timeout)
	defer cancel()
	ask := probes[p.Kind()]
	if ask == nil { // of a version that knew more
		return fmt.Errorf("there is no probe of type %q", p.Type)
	}
	return ask(ctx, p, address)
}

func probeTCP(ctx context.Context, _ service.Probe, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func probeHTTP(ctx context.Context, p service.Probe, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+cmp.Or(p.Path, "/"), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "instar-probe")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("the probe was answered with %s", resp.Status)
	}
	return nil
}

// plain is an error without addresses, which differ from try to try and would make each look like news.
func plain(err error) string {
	var op *net.OpError
	var sys syscall.Errno
	switch {
	case errors.As(err, &sys):
		return sys.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "the probe was not answered in time"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

// tell posts to the private socket of a process that follows the protocol of shared sockets.
func (u *unit) tell(ctx context.Context, c *copied, path string, body []byte) error {
	u.mu.Lock()
	address, mark := c.Address, cmp.Or(c.Secret, u.gateway.owner)
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Instar-Owner", mark)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 256)) // for the message only
		return fmt.Errorf("%s was answered with %s: %s", path, resp.Status, bytes.TrimSpace(text))
	}
	return nil
}
