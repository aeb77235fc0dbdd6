package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// published are the kinds of messages that the program publishes, each of which may be the last, or late.
var published = map[string]func(subject string) bool{
	"states":   prefixed("$KV.services."),
	"events":   prefixed("instar.evt."),
	"effects":  prefixed("instar.fx."),
	"timers":   prefixed("instar.timer."),
	"commands": prefixed("instar.cmd."),
	"acks":     func(s string) bool { return strings.HasPrefix(s, "$JS.ACK.") && strings.Contains(s, ".COMMANDS.") },
}

func prefixed(prefix string) func(string) bool {
	return func(subject string) bool { return strings.HasPrefix(subject, prefix) }
}

// patience is how long the program waits for an answer before it takes it for lost; what is held comes later.
const patience = 5 * time.Second

// CutOff breaks the connection between a running program and its NATS server at exact messages: between two events of
// one transition, before the answer to the commit, with an outbox half published, and with messages that come late.
func CutOff(t *part.T) error {
	profiles := []string{"interval"}
	if t.Long {
		profiles = append(profiles, "fsync")
	}
	for _, profile := range profiles {
		if err := cutOffUnder(t, profile); err != nil {
			return err
		}
	}
	return nil
}

func cutOffUnder(t *part.T, profile string) error {
	n, err := rig.NewNATS(t.Dir+"-"+profile+"-nats", profile)
	if err != nil {
		return err
	}
	if err := n.Start(t.Ctx); err != nil {
		return err
	}
	t.OnEnd(n.Kill)
	w, err := rig.NewWire(n.Listen)
	if err != nil {
		return err
	}
	t.OnEnd(w.Close)
	i, err := t.Serving(profile, w.URL(), append([]string{"--durability", profile}, Restless...)...)
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	crowd := &load.Crowd{Name: "c", Clients: 8, Entities: 40, Bases: []string{"http://" + i.HTTP}, Seed: t.Seed, Think: 20 * time.Millisecond, Patience: 4, Journal: journal}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	recoveries := map[rig.Fault]part.Times{}
	for range t.Amount(1, 3) {
		if err := everyFault(t, w, i, journal, recoveries); err != nil {
			return err
		}
	}
	crowd.Finish(40 * time.Second)
	r, err := t.Reader(n.URL())
	if err != nil {
		return err
	}
	// What a killed worker had in its hands comes again when its time is over.
	err = t.SettleAndJudge(r, journal, 75*time.Second, func(h *check.History) { h.Late = 40 * time.Second })
	for _, fault := range slices.Sorted(maps.Keys(recoveries)) {
		t.Say("durability %s, %s at a state, event, effect, timer, command, ack; until the next acknowledged command: %s", profile, fault, recoveries[fault])
	}
	i.Kill()
	n.Kill()
	return err
}

// everyFault does everything once to a message of every kind. Late messages are late beside each other.
func everyFault(t *part.T, w *rig.Wire, i *rig.Instar, journal *load.Journal, recoveries map[rig.Fault]part.Times) error {
	for _, fault := range []rig.Fault{rig.Kill, rig.Cut, rig.Drop, rig.Hold} {
		for _, kind := range slices.Sorted(maps.Keys(published)) {
			took, err := inject(t, w, i, journal, fault, kind)
			if err != nil {
				return fmt.Errorf("%s at %s: %w", fault, kind, err)
			}
			recoveries[fault] = append(recoveries[fault], took)
		}
	}
	if !wait.For(t.Ctx, patience+2*time.Second) {
		return t.Ctx.Err()
	}
	return nil
}

func inject(t *part.T, w *rig.Wire, i *rig.Instar, journal *load.Journal, fault rig.Fault, kind string) (time.Duration, error) {
	r := &rig.Rule{Match: published[kind], N: 1 + t.Rand.IntN(25), Do: fault, Kill: i.Kill, Hold: t.Between(patience+time.Second, patience+3*time.Second), Done: make(chan struct{})}
	w.Arm(r)
	select {
	case <-r.Done:
	case <-time.After(30 * time.Second):
		return 0, errors.New("no such message came")
	case <-t.Ctx.Done():
		return 0, t.Ctx.Err()
	}
	began, next := time.Now(), journal.NextAnswer()
	if fault == rig.Kill {
		if err := i.Start(""); err != nil {
			return 0, err
		}
	}
	select {
	case at := <-next:
		return at.Sub(began), nil
	case <-time.After(30 * time.Second):
		return 0, errors.New("no command was acknowledged within 30 s afterwards")
	case <-t.Ctx.Done():
		return 0, t.Ctx.Err()
	}
}
