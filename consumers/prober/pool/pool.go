// Package pool probes, so many instances at a time.
package pool

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines/instance"
)

// Checker probes.
type Checker interface {
	// Check probes once, and returns at the timeout at the latest.
	Check(ctx context.Context, t instance.Target) instance.Result
	// Admit says why a check of that address could never be carried out, or nil.
	Admit(check instance.Check, address string) error
}

// Pool carries probes out. Whoever asks for one gets it back with its result, whatever else it is.
type Pool[T any] struct {
	Checker Checker
	Log     *slog.Logger
	Probed  func(kind, outcome string, latency time.Duration) // is told of each probe; "passed", or a class of [instance.Result]
	Jobs    chan Job[T]
	Results chan Result[T]
}

// Job is a probe that is asked for.
type Job[T any] struct {
	For    T
	Target instance.Target
}

// Result is one that was carried out.
type Result[T any] struct {
	For    T
	Result instance.Result
}

// Try asks for a probe; it reports false when all of the pool is busy, and as many wait as may.
func (p *Pool[T]) Try(j Job[T]) bool {
	select {
	case p.Jobs <- j:
		return true
	default:
		return false
	}
}

// Work is one of the pool, until ctx ends.
func (p *Pool[T]) Work(ctx context.Context) {
	for {
		select {
		case j := <-p.Jobs:
			select {
			case p.Results <- Result[T]{j.For, p.check(ctx, j.Target)}:
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pool[T]) check(ctx context.Context, target instance.Target) (r instance.Result) {
	defer func() {
		if c := recover(); c != nil {
			panics.Caught(p.Log, "probe", c, "instance", target.Key)
			r = instance.Result{Class: instance.FailedConfig, Output: fmt.Sprintf("the probe panics: %v", c)}
		}
		outcome := r.Class
		if r.OK {
			outcome = "passed"
		}
		p.Probed(target.Check.Kind(), outcome, r.Latency)
	}()
	return p.Checker.Check(ctx, target)
}
