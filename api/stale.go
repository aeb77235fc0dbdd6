package api

import (
	"time"

	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
)

func (s *Server) staleOf(q *rest.Request, all []*watched) time.Duration {
	ms := make([]*machines.Machine, len(all))
	for i, one := range all {
		ms[i] = one.m
	}
	return s.store.Stale(ms...)
}
