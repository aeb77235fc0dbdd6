package simulation

// Clients send commands under keys, and repeat them under the same key until they are answered. What they were told is what the invariants are held against.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/bcc94042/instar/internal/simulation/orders"
	"github.com/bcc94042/instar/internal/simulation/pinned"
	"github.com/bcc94042/instar/internal/simulation/schedule"
	"github.com/bcc94042/instar/internal/simulation/trace"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// record is what a client knows of one command.
type record struct {
	orders.Order
	id      string
	asked   int      // times that it was sent
	stored  bool     // the stream has said so
	answers [][]byte // as they came
	givenUp bool     // without an answer
	gone    bool     // a restore has taken back that it was answered
	told    bool     // it expects a revision that its client was told
}

// client is somebody who sends commands one after the other.
type client struct {
	w     *World
	name  string
	r     *rand.Rand
	log   []*record
	told  map[string]string // the last revision of each entity
	done  bool
	paths closer
}

func (w *World) startClient(i int) *client {
	c := &client{w: w, name: fmt.Sprint("client-", i), r: schedule.Draws(w.opts.Seed, uint64(1000+i)), told: map[string]string{}}
	clock := w.wrongClock(schedule.Draws(w.opts.Seed, uint64(2000+i)))
	go func() {
		pinned.Use(clock)
		defer func() { c.done = true }()
		defer c.paths.close()
		if err := c.run(); err != nil {
			w.fail("client", "%s: %v", c.name, err)
		}
	}()
	return c
}

func (c *client) run() error {
	o := c.w.dialing(nil, c.name, nil)
	nc, err := streams.Connect(o)
	if err != nil {
		return err
	}
	c.paths.add(nc.Close)
	appender, err := publish.NewAppender(nc, publish.AppenderOptions{Timeout: 3 * time.Second, Sync: c.w.disk.Syncer()})
	if err != nil {
		return err
	}
	c.paths.add(appender.Close)
	commands, err := publish.NewCommands(appender)
	if err != nil {
		return err
	}
	c.paths.add(commands.Close)
	for i := range c.w.opts.Commands {
		if c.r.IntN(3) > 0 {
			time.Sleep(time.Duration(c.r.Int64N(int64(c.w.opts.Pace))))
		}
		if c.w.over {
			return nil
		}
		rec := &record{id: fmt.Sprintf("%s-%d", c.name, i)}
		if c.w.opts.Tasks {
			rec.Order = orders.DrawBeside(c.r, c.w.opts.Machines, c.w.keys, i)
		} else {
			rec.Order = orders.Draw(c.r, c.w.opts.Machines, c.w.keys)
		}
		if c.r.IntN(3) == 0 { // as of somebody who gives none: nobody keeps the answer
			rec.id = streams.MadeUpID(rec.id)
		}
		if rec.Expect == orders.Told {
			rec.Expect, rec.told = c.told[rec.Machine+"/"+rec.Key], true
		}
		c.log = append(c.log, rec)
		c.ask(commands, rec)
		if a, ok := rec.answer(); ok && a.Revision > 0 {
			c.told[rec.Machine+"/"+rec.Key] = fmt.Sprint(a.Revision)
		}
		if c.r.IntN(6) == 0 && len(rec.answers) > 0 {
			if again := c.log[c.r.IntN(len(c.log))]; c.w.keyed(again) {
				c.ask(commands, again)
				c.reuse(commands, again)
			}
		}
	}
	return nil
}

// ask sends a command until it is answered.
func (c *client) ask(commands *publish.Commands, rec *record) {
	cmd := publish.Command{Machine: rec.Machine, Key: rec.Key, Name: rec.Name, ID: rec.id, Actor: c.name, Expect: rec.Expect, Body: rec.Body}
	restores := c.w.restores
	for began := time.Now(); !c.w.over; {
		rec.asked++
		ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(c.r.Int64N(int64(4*time.Second))))
		m, err := commands.AskMsg(ctx, cmd, func(r publish.Result) { rec.stored = rec.stored || r.Err == nil })
		cancel()
		if err == nil {
			rec.answers = append(rec.answers, m.Data)
			c.w.onDisk(rec)
			if took := time.Since(began); took > streams.CommandWindow && !c.w.lost && restores == c.w.restores {
				c.w.fail("C3", "%s was answered only after %s, when the stream had forgotten its id", rec.id, took)
			}
			c.w.trace.Note(c.name, "is answered under %s: %s", rec.id, trace.Short(m.Data))
			return
		}
		rec.stored = rec.stored || errors.As(err, new(*publish.AcceptedError))
		if errors.Is(err, publish.ErrConflict) || publish.Permanent(err) {
			c.w.trace.Note(c.name, "is refused %s: %v", rec.id, err)
			break
		}
		c.w.trace.Note(c.name, "has no answer under %s: %v", rec.id, err)
		if !c.w.keyed(rec) {
			break // a stream whose server was restarted takes it again
		}
		time.Sleep(time.Duration(c.r.Int64N(int64(500 * time.Millisecond))))
	}
	rec.givenUp = len(rec.answers) == 0
}

// onDisk: what changes nothing is answered when its command is on disk, or a loss of power could take both that and what was told of it.
func (w *World) onDisk(rec *record) {
	a, ok := rec.answer()
	seq := w.history.seqs[streams.CommandID(rec.Machine, rec.Key, rec.id)][0]
	if on := w.server.Synced(streams.CommandStream); ok && w.opts.Profile == schedule.Fsync && !w.lost && a.Outcome != machines.Applied && seq > on {
		w.fail("S1", "%s was answered %s, and its command %d is not on disk, which has %d", rec.id, a.Outcome, seq, on)
	}
}

// reuse sends a command under the key of another one, once: it differs in the revision that it expects.
func (c *client) reuse(commands *publish.Commands, rec *record) {
	cmd := publish.Command{Machine: rec.Machine, Key: rec.Key, Name: rec.Name, ID: rec.id, Actor: c.name, Body: rec.Body}
	if rec.Expect == "" {
		cmd.Expect = "*"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var a machines.Answer
	raw, err := commands.Ask(ctx, cmd)
	if err != nil || c.w.lost || rec.gone || json.Unmarshal(raw, &a) != nil || len(rec.answers) == 0 {
		return
	}
	if a.Refusal == nil || a.Refusal.Code != machines.CodeKeyReused {
		c.w.fail("I4b", "%s was used for another command, which was answered %s", rec.id, raw)
	}
}
