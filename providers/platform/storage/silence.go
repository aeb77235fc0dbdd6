package storage

import (
	"cmp"
	"context"
	"time"

	"github.com/bcc94042/instar/providers"
)

// patience is for how long nothing may come of a bucket that is read. The client gets what a server that is back still has to say after ten seconds.
const patience = 15 * time.Second

// silence is a context that ends when nothing has come for too long: what is awaited may be lost with its connection, and a client waits for that until ctx ends, however much time that has.
type silence struct {
	context.Context
	within time.Duration
	timer  *time.Timer
	end    context.CancelCauseFunc
}

// listen begins a silence. It is to be ended.
func listen(ctx context.Context, within time.Duration, bucket string) *silence {
	s := &silence{within: cmp.Or(within, patience)}
	s.Context, s.end = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(s.within, func() {
		s.end(providers.Errorf(providers.Unavailable, "nothing more came of the bucket %s for %s", bucket, s.within))
	})
	return s
}

// heard begins the silence anew, as something has come.
func (s *silence) heard() { s.timer.Reset(s.within) }

// over ends it.
func (s *silence) over() {
	s.timer.Stop()
	s.end(nil)
}
