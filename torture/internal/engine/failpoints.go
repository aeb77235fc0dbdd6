package engine

import (
	"fmt"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// points are the places of the commit protocol and of the workers where the program kills itself. A point that is only
// reached while another death is repaired has that one before it. Some are not reached more often than most.
var points = []struct {
	name, before string
	most         int
}{
	{"before-kv", "", 300},
	{"after-kv", "", 300},
	{"before-publish", "", 300},
	{"after-events", "", 300},
	{"before-ack", "", 300},
	{"between-acks", "", 300},
	{"effect-before-result", "", 100},
	{"effect-before-ack", "", 100},
	{"after-reset", "", 32},
	{"taken-before", "before-ack", 1},
}

// Failpoints lets the program kill itself at every place, the first, the second and a later time that it comes there.
func Failpoints(t *part.T) error {
	i, err := t.Instar("data", "", append([]string{"--durability", "interval"}, Restless...)...)
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	deaths := 0
	var recoveries part.Times
	for n, p := range points {
		crowd := &load.Crowd{Name: fmt.Sprintf("p%dc", n), Clients: 8, Entities: 40, Bases: []string{"http://" + i.HTTP}, NATS: i.NATSURL(), Seed: t.Seed, Think: 10 * time.Millisecond, Patience: 2, Journal: journal}
		if err := crowd.Start(t.Ctx); err != nil {
			return err
		}
		for _, hit := range hits(t, p.most) {
			took, err := dieAt(t, i, journal, p.before, fmt.Sprintf("%s:%d", p.name, hit))
			if err != nil {
				return err
			}
			recoveries = append(recoveries, took)
			deaths++
		}
		crowd.Finish(30 * time.Second)
	}
	if t.Long {
		if err := awayLong(t, i, journal); err != nil {
			return err
		}
	}
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	err = t.SettleAndJudge(r, journal, 60*time.Second, nil)
	t.Say("%d deaths at %d places; from start to the first acknowledged command: %s", deaths, len(points), recoveries)
	return err
}

// awayLong lets the program die with everything published and nothing acked, and starts it only when the stream has
// forgotten the ids of those events: nothing but their guards and the entity's own account keep them from coming again.
func awayLong(t *part.T, i *rig.Instar, journal *load.Journal) error {
	for n := range 3 {
		crowd := &load.Crowd{Name: fmt.Sprintf("away%dc", n), Clients: 16, Entities: 4, Bases: []string{"http://" + i.HTTP}, Seed: t.Seed, Patience: 2, Journal: journal}
		if err := crowd.Start(t.Ctx); err != nil {
			return err
		}
		if err := die(t, i, fmt.Sprintf("before-ack:%d", 20+t.Rand.IntN(100)), 20*time.Second); err != nil {
			return err
		}
		if !wait.For(t.Ctx, streams.EventWindow+5*time.Second) {
			return t.Ctx.Err()
		}
		if _, err := killAndWait(t, i, journal); err != nil {
			return err
		}
		crowd.Finish(30 * time.Second)
	}
	return nil
}

// hits are when to die: the first time, the second, and later.
func hits(t *part.T, most int) []int {
	hits := []int{1, min(2, most), min(3+t.Rand.IntN(30), most)}
	for range t.Amount(0, 4) {
		hits = append(hits, min(3+t.Rand.IntN(300), most))
	}
	return hits
}

// dieAt runs the program until it dies at a place, and starts it again. Where it has to die somewhere else first, what
// it died with may not lead there: then it dies there again.
func dieAt(t *part.T, i *rig.Instar, journal *load.Journal, before, point string) (time.Duration, error) {
	for try := 1; ; try++ {
		if before != "" {
			if err := die(t, i, fmt.Sprintf("%s:%d", before, 1+t.Rand.IntN(20)), 20*time.Second); err != nil {
				return 0, err
			}
		}
		patience := 20 * time.Second
		if before != "" && try < 6 {
			patience = 2 * time.Second
		}
		err := die(t, i, point, patience)
		if err == nil {
			return killAndWait(t, i, journal)
		}
		if patience == 20*time.Second {
			return 0, err
		}
	}
}

func die(t *part.T, i *rig.Instar, point string, patience time.Duration) error {
	if i.Process != nil {
		i.Kill()
	}
	if err := i.Start(point); err != nil {
		return err
	}
	if err := i.Wait(t.Ctx, patience); err != nil {
		return fmt.Errorf("%s was not reached: %w", point, err)
	}
	if !i.Killed() {
		return fmt.Errorf("at %s the program ended, but not by its own kill: %w", point, i.Ready(t.Ctx, time.Second))
	}
	return nil
}
