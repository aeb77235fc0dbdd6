package main

import (
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

// spent is the CPU time of this process (relay, NATS server, measuring) and of Postgres.
type spent struct{ here, postgres time.Duration }

func (s spent) minus(t spent) spent { return spent{s.here - t.here, s.postgres - t.postgres} }

// cpu reads what was spent up to now.
func cpu(postmaster int) (s spent, err error) {
	if s.here, err = rig.Self(); err == nil {
		s.postgres, err = rig.Family(postmaster)
	}
	return s, err
}
