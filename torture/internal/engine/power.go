package engine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/bcc94042/instar/internal/powerloss"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// Power takes the power from the disk of a server under load, several times. With fsync nothing that was acknowledged is lost.
// With interval that is the last 100 ms, and as long as the disk needs to sync; what is left fits together.
func Power(t *part.T) error {
	for _, profile := range []string{"interval", "fsync"} {
		p := &outage{T: t, profile: profile, journal: &load.Journal{}}
		err := p.run(t.Amount(2, 12))
		if err != nil {
			return err
		}
	}
	return nil
}

// outage is one server on a disk of its own.
type outage struct {
	*part.T
	profile string
	journal *load.Journal
	disk    *powerloss.Disk
	instar  *rig.Instar
	cuts    []cut
}

// cut is when the power went, and when nobody could be answered any more.
type cut struct{ at, dead time.Time }

const (
	barrier = 100 * time.Millisecond // between two rounds
	slow    = time.Second            // a round that takes longer is told
)

func (p *outage) run(cuts int) (err error) {
	p.disk, err = powerloss.New(p.Dir+"-"+p.profile, powerloss.Ext4, 256<<20)
	if errors.Is(err, powerloss.ErrCannot) {
		return part.Skipped(err.Error())
	}
	if err != nil {
		return err
	}
	p.OnEnd(func() { _ = p.disk.Close() })
	if p.instar, err = rig.New(p.Bin, filepath.Join(p.disk.Path, "data"), "", append([]string{"--durability", p.profile}, Restless...)...); err != nil {
		return err
	}
	p.instar.Logs = p.Dir + "-" + p.profile + ".log" // beside the disk
	p.OnEnd(func() {
		if p.instar.Process != nil {
			p.instar.Kill()
		}
	})
	if err := p.instar.Serve(p.Ctx); err != nil {
		return err
	}
	deadlines := Clockwork(p.T, p.instar, p.journal, 2*time.Second)
	crowd := &load.Crowd{Name: "c", Clients: 8, Entities: 60, Bases: []string{"http://" + p.instar.HTTP}, NATS: p.instar.NATSURL(), Seed: p.Seed, Think: 20 * time.Millisecond, Journal: p.journal}
	if err := crowd.Start(p.Ctx); err != nil {
		return err
	}
	for n := range cuts {
		if !wait.For(p.Ctx, p.Between(2*time.Second, 4*time.Second)) {
			return p.Ctx.Err()
		}
		if n%2 == 1 { // what a process that is killed has not synced, the next one finds and may answer for
			p.instar.Kill()
			answered := p.journal.NextAnswer()
			if err := p.instar.Start(""); err != nil {
				return err
			}
			select {
			case <-answered:
			case <-time.After(60 * time.Second):
				return fmt.Errorf("no command was acknowledged within a minute after a kill; it said:\n%s", p.instar.Tail())
			}
		}
		if err := p.cut(); err != nil {
			return err
		}
	}
	crowd.Finish(30 * time.Second)
	r, err := p.Reader(p.instar.NATSURL())
	if err != nil {
		return err
	}
	return p.SettleAndJudge(r, p.journal, time.Minute, func(h *check.History) {
		h.Deadlines = deadlines
		p.forgive(h)
	})
}

// cut takes the power away, ends the process, which cannot do anything any more, and starts it on what is left.
func (p *outage) cut() error {
	c := cut{at: time.Now()}
	if err := p.disk.Cut(); err != nil {
		return err
	}
	p.instar.Kill()
	c.dead = time.Now()
	p.cuts = append(p.cuts, c)
	answered := p.journal.NextAnswer()
	if err := errors.Join(p.disk.Back(), p.instar.Start("")); err != nil {
		return err
	}
	select {
	case <-answered:
		return nil
	case <-p.instar.Exited():
		return fmt.Errorf("instar ended at its start after a power loss: %w", p.instar.Ready(p.Ctx, time.Second))
	case <-time.After(60 * time.Second):
		return fmt.Errorf("no command was acknowledged within a minute after a power loss; it said:\n%s", p.instar.Tail())
	case <-p.Ctx.Done():
		return p.Ctx.Err()
	}
}

// forgive takes back what clients were told within the time that a power loss may cost, and tells how much of it was lost. What the
// server told itself not to fit together is not judged: with interval the power may have gone in the middle of a round.
func (p *outage) forgive(h *check.History) {
	window := time.Duration(0)
	if p.profile == "interval" {
		window = barrier + 2*max(p.slowest(), slow) // written behind the round before the last one, if the last did not end
	}
	kept := map[string]bool{}
	h.Foreign = map[string]bool{}
	for _, e := range h.Events {
		kept[e.Key+" "+e.Body.CommandID] = true
		if e.Type == "entity.reconciled" {
			h.Foreign[e.Key] = true
		}
	}
	lost, oldest := 0, time.Duration(0)
	for i := range h.Commands {
		cmd := &h.Commands[i]
		for _, c := range p.cuts {
			if cmd.Outcome == "" || cmd.Answered.Before(c.at.Add(-window)) || cmd.Answered.After(c.dead) {
				continue
			}
			if cmd.Outcome == check.Applied && !kept[cmd.Key+" "+cmd.ID] {
				lost++
				oldest = max(oldest, c.at.Sub(cmd.Answered))
			}
			cmd.Outcome = check.Unknown
		}
	}
	p.Say("durability %s: the power went %d times; %d acknowledged commands were lost, the oldest %s before; %d entities were told not to fit their events", p.profile, len(p.cuts), lost, oldest.Round(time.Millisecond), len(h.Foreign))
	if p.profile == "fsync" && len(h.Foreign) > 0 {
		p.Violations++
		p.Say("VIOLATION power: entities do not fit their events although every write is on disk: %v", h.Foreign)
	}
}

var tookSync = regexp.MustCompile(`the disk is slow to sync.* took=(\S+)`)

// slowest is the longest round that the server told of.
func (p *outage) slowest() (most time.Duration) {
	f, err := os.Open(p.instar.Log())
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if m := tookSync.FindStringSubmatch(lines.Text()); m != nil {
			if took, err := time.ParseDuration(m[1]); err == nil {
				most = max(most, took)
			}
		}
	}
	return most
}
