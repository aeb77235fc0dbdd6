package shop

// An operator looks at what waits for him now and then, as instar outbox does it: he discards events of a type that is not published, and redrives all that have failed.

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/streams/outbox"
)

// Operate lets an operator work until the applications are done. What is returned is closed then.
func (d Database) Operate(apps []*App) <-chan struct{} {
	done, r := make(chan struct{}), schedule.Draws(d.Options.Seed, 4)
	go func() {
		defer close(done)
		for _, a := range apps {
			for working := true; working && !d.Over.Load(); {
				t := time.NewTimer(d.Options.short(time.Duration(r.Int64N(int64(8 * time.Second)))))
				select {
				case <-a.done:
					working = false
				case <-t.C:
					d.act(r)
				}
				t.Stop()
			}
		}
	}()
	return done
}

func (d Database) act(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := d.operate(ctx, r.IntN(3) == 0, r.IntN(3) > 0)
	d.Note("the operator: %v", err)
}

// Settle lets him discard all that is not to be published, and redrive everything else, again and again until stop is closed. What is returned is closed then.
func (d Database) Settle(stop <-chan struct{}) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pause := d.Options.short(time.Second)
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err := d.operate(ctx, true, true)
			cancel()
			d.Note("the operator, at the end: %v", err)
			t := time.NewTimer(pause)
			pause = min(2*pause, time.Second) // in real time, where a pause is shorter, one who redrives what is just being published, again and again, keeps it from being so
			select {
			case <-stop:
				t.Stop()
				return
			case <-t.C:
			}
		}
	}()
	return done
}

func (d Database) operate(ctx context.Context, discard, redrive bool) error {
	store, err := outbox.OpenThrough(ctx, d.DSN, "", d.Dial)
	if err != nil {
		return err
	}
	defer store.Pool.Close()
	if discard {
		if _, err := store.Discard(ctx, outbox.Filter{EventType: strange}, "operator"); err != nil {
			return err
		}
	}
	if redrive {
		_, err = store.Redrive(ctx, outbox.Filter{All: true}, "operator")
	}
	return err
}
