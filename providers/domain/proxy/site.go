package proxy

import (
	"slices"
	"sync"
	"time"
)

// site is a host of a table.
type site struct {
	host   string
	health Health
	counts *counts // of the host, in all tables

	backends []share

	mu    sync.Mutex
	turns []int // of the backends: who has the highest one is next
}

// share is the part of a backend in the requests of a site.
type share struct {
	*backend
	weight int
}

// next chooses a backend that has not been tried, nil if there is none: the healthy ones by smooth weighted round robin, which keeps the proportion over any
// few requests. If all were out of reach a moment ago, they are tried nevertheless: nobody else knows better.
func (s *site) next(tried []*backend) *backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, unreached := range [...]bool{false, true} {
		best, sum := -1, 0
		for i, b := range s.backends {
			if b.weight == 0 || b.sick.Load() != nil || b.unreached(now) != unreached || slices.Contains(tried, b.backend) {
				continue
			}
			s.turns[i] += b.weight
			sum += b.weight
			if best < 0 || s.turns[i] > s.turns[best] {
				best = i
			}
		}
		if best >= 0 {
			s.turns[best] -= sum
			return s.backends[best].backend
		}
	}
	return nil
}

// take chooses a backend for a host, and counts one request for it until it is released. A request that has chosen by a table is counted before the next table is there,
// or chooses again: whoever drains a backend sees each.
func (p *Proxy) take(host string, tried []*backend) *backend {
	for {
		t := p.table.Load()
		s := (*t)[host]
		if s == nil {
			return nil
		}
		b := s.next(tried)
		if b == nil {
			return nil
		}
		b.inFlight.Add(1)
		if p.table.Load() == t {
			return b
		}
		b.inFlight.Add(-1)
	}
}
