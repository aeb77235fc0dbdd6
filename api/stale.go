package api

import (
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/machines"
)

// headerStale is on answers from memory, only while the node may be behind.
const headerStale = "X-Instar-Stale-Seconds"

// stale is for how long what this node has in memory of some machines may be behind: since it last heard from their buckets,
// or, where discovery tells, from the other nodes. 0 is not at all.
func (s *Server) stale(ms ...*machines.Machine) (longest time.Duration) {
	for _, m := range ms {
		longest = max(longest, s.o.Indexes[m.Name].Stale())
	}
	if s.o.Discovery == nil {
		return longest
	}
	select {
	case <-s.o.Discovery.Ready():
		return max(longest, s.o.Discovery.Stale())
	default:
		return longest
	}
}

// tellStale says in a header of the answer, and returns for its body, in seconds, how old it may be.
func (q *request) tellStale(m *machines.Machine) float64 {
	stale := q.stale(m)
	if stale > 0 {
		q.w.Header()[headerStale] = []string{seconds(stale)}
	}
	return stale.Seconds()
}

// fresh says in a watch that what was told is stale, or is not any more.
func (w *eventWriter) fresh(stale time.Duration) {
	if stale == 0 && !w.stale {
		return
	}
	w.stale = stale > 0
	text := "0"
	if w.stale {
		text = seconds(stale)
	}
	w.event("stale", "", fmt.Appendf(nil, `{"staleSeconds":%s}`, text))
}

func (q *request) staleOf(all []*watched) time.Duration {
	ms := make([]*machines.Machine, len(all))
	for i, one := range all {
		ms[i] = one.m
	}
	return q.stale(ms...)
}

func staleHeader() *huma.Param {
	return &huma.Param{Schema: &huma.Schema{Type: huma.TypeNumber}, Description: "Only while the node hears nothing from the bucket, or cannot hear the others: what is answered is what it knew so many seconds ago"}
}
