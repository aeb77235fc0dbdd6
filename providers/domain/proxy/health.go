package proxy

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"
)

func (h Health) filled() Health {
	h.Every, h.Within = cmp.Or(h.Every, 10*time.Second), cmp.Or(h.Within, 2*time.Second)
	return h
}

// Run checks the backends of the table until ctx ends. Then it closes what is upgraded: shut servers down before, which do not know of it.
func (p *Proxy) Run(ctx context.Context) error {
	defer p.end()
	running := make(map[*backend]*check)
	defer func() {
		for _, c := range running {
			c.stop()
		}
	}()
	for {
		wanted := p.checked()
		for b, c := range running {
			if h, still := wanted[b]; h != c.health {
				c.stop()
				delete(running, b)
				if !still { // nobody would say that it is healthy again
					b.sick.Store(nil)
				}
			}
		}
		for b, h := range wanted {
			if running[b] == nil {
				running[b] = p.start(ctx, b, h)
			}
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// checked are the backends of the table that are checked, and how.
func (p *Proxy) checked() map[*backend]Health {
	wanted := make(map[*backend]Health)
	for _, s := range *p.table.Load() {
		for _, b := range s.backends {
			if s.health.Path != "" {
				wanted[b.backend] = s.health
			}
		}
	}
	return wanted
}

// check is one that runs.
type check struct {
	health Health
	cancel context.CancelFunc
	ended  chan struct{}
}

func (p *Proxy) start(ctx context.Context, b *backend, h Health) *check {
	ctx, cancel := context.WithCancel(ctx)
	c := &check{h, cancel, make(chan struct{})}
	go func() {
		defer close(c.ended)
		p.watch(ctx, b, h)
	}()
	return c
}

func (c *check) stop() {
	c.cancel()
	<-c.ended
}

// watch checks a backend. One failure may be chance: the second one, soon after, makes it unhealthy, and one success healthy again.
func (p *Proxy) watch(ctx context.Context, b *backend, h Health) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for failures := 0; ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		err := p.ask(ctx, b, h)
		if ctx.Err() != nil {
			return
		}
		next := h.Every
		if err == nil {
			failures = 0
		} else if failures++; failures == 1 {
			next = min(h.Every, time.Second)
		}
		p.judge(b, failures, err)
		timer.Reset(next)
	}
}

// judge takes note of a check that has failed for so many times, or of none.
func (p *Proxy) judge(b *backend, failures int, err error) {
	before := b.sick.Load()
	switch {
	case err == nil:
		b.sick.Store(nil)
		b.refused.Store(nil)
		if before != nil {
			p.log.Info("a backend is healthy again", "host", b.host, "address", b.address)
		}
	case failures > 1 || before != nil:
		why := err.Error()
		b.sick.Store(&why)
		if before == nil {
			p.log.Warn("a backend is not healthy", "host", b.host, "address", b.address, "error", err)
		}
	}
}

// ask asks a backend whether it is healthy, as its host, because many applications serve no other one.
func (p *Proxy) ask(ctx context.Context, b *backend, h Health) error {
	ctx, cancel := context.WithTimeout(ctx, h.Within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.address+h.Path, nil)
	if err != nil {
		return fmt.Errorf("cannot ask %s for %s: %w", b.address, h.Path, err)
	}
	req.Host = b.asked(b.host)
	req.Header.Set("User-Agent", "instar-health")
	resp, err := p.transport.RoundTrip(req) // redirects are answers
	if err != nil {
		return fmt.Errorf("cannot ask %s for %s: %w", b.address, h.Path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answers %s with %s", b.address, h.Path, resp.Status)
	}
	return nil
}
