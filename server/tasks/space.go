package tasks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
)

const (
	spaceEvery = 5 * time.Second
	spaceProbe = 256 << 10   // bytes
	spaceCalm  = time.Minute // between a try to write that failed and the next task: what failed has freed what it had written
)

// space keeps tasks from a node that can write nothing for them, as with a full disk. They would fail there within milliseconds, and a node that has nothing to do gets the next attempt, too, while
// others are busy.
type space struct {
	dir   string // of what runs
	offer func(tasks int)
	tasks int // that this node does at a time
	log   *slog.Logger
	now   func() time.Time

	mu    sync.Mutex
	until time.Time // no tasks are offered places before; zero while some are
}

// Run looks until ctx ends.
func (s *space) Run(ctx context.Context) error {
	for wait.For(ctx, spaceEvery) {
		s.look()
	}
	return nil
}

func (s *space) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	err, now := s.probe(), s.now()
	switch out := !s.until.IsZero(); {
	case err != nil:
		s.until = now.Add(spaceCalm)
		if !out {
			s.log.Error("this node takes no tasks: it cannot write for them; free the disk, or mend the directory", "dir", s.dir, "error", err)
			s.offer(0)
		}
	case out && now.After(s.until):
		s.until = time.Time{}
		s.log.Info("this node takes tasks again", "dir", s.dir)
		s.offer(s.tasks)
	}
}

func (s *space) probe() error {
	f, err := os.CreateTemp(s.dir, "probe-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, spaceProbe))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
