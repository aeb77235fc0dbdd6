// Package probe asks programs on loopback whether they are healthy.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/bcc94042/instar/machines/service"
)

// Client asks processes on loopback: never through a proxy, never along a redirect, never on an old connection.
var Client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Patience is a probe's values with their defaults.
type Patience struct {
	Period, Timeout, Startup time.Duration
	Failures                 int
}

// PatienceOf is that of a probe.
func PatienceOf(p service.Probe) Patience {
	return Patience{
		Period:   time.Duration(cmp.Or(p.PeriodMillis, 1000)) * time.Millisecond,
		Timeout:  time.Duration(cmp.Or(p.TimeoutMillis, 1000)) * time.Millisecond,
		Startup:  time.Duration(cmp.Or(p.StartupSeconds, 30)) * time.Second,
		Failures: cmp.Or(p.Failures, 3),
	}
}

// probes are the ways to ask for health, by the type of the probe.
var probes = map[string]func(ctx context.Context, p service.Probe, address string) error{
	service.ProbeHTTP: probeHTTP,
	service.ProbeTCP:  probeTCP,
}

// Known reports whether there is a way to ask for health as the probe says.
func Known(p service.Probe) bool { return probes[p.Kind()] != nil }

// Ask asks for health once. address is host:port.
func Ask(ctx context.Context, p service.Probe, address string) error {
	ctx, cancel := context.WithTimeout(ctx, PatienceOf(p).Timeout)
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
	resp, err := Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return fmt.Errorf("the probe was answered with %s", resp.Status)
	}
	return nil
}

// Plain is an error without addresses, which differ from try to try and would make each look like news.
func Plain(err error) string {
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
