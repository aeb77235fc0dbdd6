package engine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// Restless makes everything happen often: looks at the world, and doubts about what is ready.
var Restless = []string{"--observe-every", "2s", "--ready-stale", "2s", "--log-level", "warn"}

// Killed ends the whole process, embedded NATS and all, every one to three seconds under load.
func Killed(t *part.T) error {
	profiles := []string{"fsync"}
	if t.Long {
		profiles = append(profiles, "interval")
	}
	for _, p := range profiles {
		if err := killUnder(t, p, t.Amount(20, 40)); err != nil {
			return err
		}
	}
	return nil
}

func killUnder(t *part.T, profile string, kills int) error {
	i, err := t.Serving(profile, "", append([]string{"--durability", profile}, Restless...)...)
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	deadlines := Clockwork(t, i, journal, 2*time.Second)
	crowd := &load.Crowd{Name: "c", Clients: 16, Entities: 200, Bases: []string{"http://" + i.HTTP}, NATS: i.NATSURL(), Seed: t.Seed, Think: 20 * time.Millisecond, Journal: journal}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	var recoveries part.Times
	for range kills {
		if !wait.For(t.Ctx, t.Between(time.Second, 3*time.Second)) {
			return t.Ctx.Err()
		}
		took, err := killAndWait(t, i, journal)
		if err != nil {
			return err
		}
		recoveries = append(recoveries, took)
	}
	crowd.Finish(30 * time.Second)
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	err = t.SettleAndJudge(r, journal, 60*time.Second, func(h *check.History) { h.Deadlines = deadlines })
	t.Say("durability %s: %d kills; from start to the first acknowledged command: %s", profile, kills, recoveries)
	i.Kill()
	return err
}

// killAndWait kills the program, starts it again and waits for the first command that it acknowledges.
func killAndWait(t *part.T, i *rig.Instar, journal *load.Journal) (time.Duration, error) {
	i.Kill()
	answered := journal.NextAnswer()
	if err := i.Start(""); err != nil {
		return 0, err
	}
	select {
	case at := <-answered:
		return at.Sub(i.Began), nil
	case <-i.Exited():
		return 0, fmt.Errorf("instar ended at its start: %w", i.Ready(t.Ctx, time.Second))
	case <-time.After(30 * time.Second):
		return 0, fmt.Errorf("no command was acknowledged within 30 s after a start")
	case <-t.Ctx.Done():
		return 0, t.Ctx.Err()
	}
}

// Clockwork makes entities that never become ready: some must fail by their deadlines whatever happens, some have one
// that is so far off that they must still be waiting for it at the end. apart is the time between two deadlines.
func Clockwork(t *part.T, i *rig.Instar, journal *load.Journal, apart time.Duration) map[string]time.Duration {
	c := &load.Client{Name: "clock", Bases: []string{"http://" + i.HTTP}, Journal: journal, Rand: rand.New(rand.NewPCG(t.Seed, 1))}
	deadlines := map[string]time.Duration{}
	for n := range 20 {
		after := 3*time.Second + time.Duration(n)*apart
		id := fmt.Sprintf("timer%d", n)
		c.Create(t.Ctx, id, "sim:never-ready", after)
		deadlines[load.Key(id)] = after
	}
	for n := range 5 {
		c.Create(t.Ctx, fmt.Sprintf("waits%d", n), "sim:never-ready", time.Hour)
	}
	return deadlines
}
