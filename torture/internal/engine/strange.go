package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// mischief is somebody who may publish what he likes.
type mischief struct {
	*part.T
	instar  *rig.Instar
	reader  *rig.Reader
	journal *load.Journal
	client  *load.Client

	mu      sync.Mutex
	heard   []*nats.Msg            // commands and results, as they were sent
	effects []*nats.Msg            //
	recent  map[string][]*nats.Msg // the last user commands of each entity
	seen    map[string]bool        // the ids of all user commands

	did     map[string]int
	buried  int
	spoiled []string // entities whose promises were broken on purpose
}

// Strange repeats, reorders, delays and forges messages, and writes values by hand, under load.
func Strange(t *part.T) error {
	i, err := t.Serving("data", "", append([]string{"--durability", "fsync"}, Restless...)...)
	if err != nil {
		return err
	}
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	m := &mischief{T: t, instar: i, reader: r, journal: &load.Journal{}, recent: map[string][]*nats.Msg{}, seen: map[string]bool{}, did: map[string]int{}}
	m.client = &load.Client{Name: "m", Bases: []string{"http://" + i.HTTP}, Journal: m.journal, Rand: rand.New(rand.NewPCG(t.Seed, 3))}
	if err := m.listen(); err != nil {
		return err
	}
	crowd := &load.Crowd{Name: "c", Clients: 8, Entities: 40, Bases: []string{"http://" + i.HTTP}, NATS: i.NATSURL(), Seed: t.Seed, Think: 20 * time.Millisecond, Patience: 3, Journal: m.journal}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	err = m.all()
	crowd.Finish(40 * time.Second)
	if err != nil {
		return err
	}
	err = t.SettleAndJudge(r, m.journal, 60*time.Second, func(h *check.History) {
		h.Buried, h.Foreign = m.buried, map[string]bool{}
		// The world is looked at every two seconds, and a deadline may come: such commands may be on their way when a value is broken.
		h.Letters = slices.DeleteFunc(h.Letters, func(l string) bool {
			return strings.Contains(l, ".parked") && (strings.Contains(l, ".observed because ") || strings.Contains(l, ".elapsed because "))
		})
		for _, key := range m.spoiled {
			h.Foreign[key] = true
		}
	})
	t.Say("done: %v", m.did)
	return err
}

func (m *mischief) all() error {
	for round := range m.Amount(3, 10) {
		if err := m.poison(round); err != nil {
			return err
		}
		end := time.Now().Add(2 * time.Second)
		for time.Now().Before(end) && wait.For(m.Ctx, 10*time.Millisecond) {
			m.repeat()
			if m.Rand.IntN(10) == 0 {
				m.touch(fmt.Sprintf("e%d", m.Rand.IntN(40)))
			}
		}
		if err := m.park(round); err != nil {
			return err
		}
		if _, err := killAndWait(m.T, m.instar, m.journal); err != nil {
			return err
		}
		if err := m.repeatRecent(); err != nil {
			return err
		}
	}
	return m.forgotten()
}

// listen keeps what is published, as any subscriber could.
func (m *mischief) listen() error {
	_, err := m.reader.NC().Subscribe("instar.cmd."+check.Machine+".>", func(msg *nats.Msg) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if id := msg.Header.Get(nats.MsgIdHdr); id == "" || strings.Contains(id, "strange-") || len(msg.Header["Instar-Lookup"]) > 0 {
			return
		}
		tokens := strings.Split(msg.Subject, ".")
		switch tokens[5] {
		case "create", "update", "label", "refresh", "delete", "rollback", "purge":
			id := msg.Header.Get(nats.MsgIdHdr)
			if m.seen[id] { // one that was repeated is not among the last ones again
				break
			}
			m.seen[id] = true
			key := tokens[3] + "." + tokens[4]
			m.recent[key] = append(m.recent[key], msg)
			m.recent[key] = m.recent[key][max(0, len(m.recent[key])-5):]
		case "observed", "deleted-observed": // without an attempt: the same again is another observation
			return
		}
		m.heard = append(m.heard, msg)
	})
	if err == nil {
		_, err = m.reader.NC().Subscribe("instar.fx.>", func(msg *nats.Msg) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !strings.HasPrefix(msg.Header.Get(nats.MsgIdHdr), "strange") {
				m.effects = append(m.effects, msg)
			}
		})
	}
	return err
}

// again publishes a message that was heard. Without an id of its own it passes the window of the stream.
func (m *mischief) again(msg *nats.Msg, subject, id string) {
	out := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: msg.Data}
	for k, v := range msg.Header {
		if k == nats.MsgIdHdr || strings.HasPrefix(k, "Instar-") && k != "Instar-Reply" || k == "traceparent" {
			out.Header[k] = v
		}
	}
	if id != "" {
		out.Header.Set(nats.MsgIdHdr, id)
	}
	_ = m.reader.NC().PublishMsg(out) // the server may be away
}

// strangeID is a new id for a command: one that belongs to its entity, as any other makes it a dead letter.
func strangeID(subject string) string {
	tokens := strings.SplitN(subject, ".", 6)
	return tokens[2] + "/" + tokens[3] + "." + tokens[4] + "/strange-" + nuid.Next()
}

// repeat publishes something a second time: a command under its id, a late result or an effect under new ones.
func (m *mischief) repeat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.heard) == 0 || len(m.effects) == 0 {
		return
	}
	msg := m.heard[m.Rand.IntN(len(m.heard))]
	if m.Rand.IntN(2) == 0 {
		msg = m.heard[len(m.heard)-1]
	}
	tokens := strings.Split(msg.Subject, ".")
	switch tokens[5] {
	case "applied", "failed", "delete-accepted":
		m.did["results late and again"]++
		m.again(msg, msg.Subject, strangeID(msg.Subject))
	default:
		if time.Since(m.instar.Began) < 90*time.Second { // within the stream's window and this life of the server
			m.did["commands again"]++
			m.again(msg, msg.Subject, "")
		}
	}
	fx := m.effects[len(m.effects)-1-m.Rand.IntN(min(20, len(m.effects)))]
	m.did["effects again"]++
	m.again(fx, fx.Subject, "strange-"+nuid.Next())
}

// repeatRecent repeats, after a restart, the last commands of every entity under their ids: the stream has forgotten
// them, so that only the entities' own memory is left. That holds what was applied; a refusal is remembered in the
// engine's memory until the next commit, and after a restart the same command is decided anew.
func (m *mischief) repeatRecent() error {
	if err := rig.Until(m.Ctx, 30*time.Second, "the connection is back", m.reader.NC().IsConnected); err != nil {
		return err
	}
	applied := map[string]bool{}
	for _, c := range m.journal.Commands() {
		applied[check.Machine+"/"+c.Key+"/"+c.ID] = c.Outcome == check.Applied
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = nil // of the life before
	for _, list := range m.recent {
		for _, msg := range list {
			if !applied[msg.Header.Get(nats.MsgIdHdr)] {
				continue
			}
			m.did["commands again after a restart"]++
			m.again(msg, msg.Subject, "")
		}
	}
	return m.reader.NC().FlushTimeout(20 * time.Second)
}

// poison sends what cannot be handled and waits for the dead letters.
func (m *mischief) poison(round int) error {
	id := fmt.Sprintf("poisoned%d", round)
	m.client.Create(m.Ctx, id, "nothing", 5*time.Second)
	for _, p := range []struct{ subject, body string }{
		{"instar.cmd.service." + load.Key(id) + ".applied", "this is no report"},
		{"instar.cmd.service." + load.Key(id) + ".elapsed", `["nor is this"]`},
		{"instar.cmd.ghost." + load.Key(id) + ".create", "{}"},
		{"instar.cmd.service.default.UPPER.create", "{}"},
		{"instar.cmd.service.default.too.deep.create", "{}"},
	} {
		ctx, cancel := context.WithTimeout(m.Ctx, 20*time.Second)
		_, err := m.reader.JS().PublishMsg(ctx, &nats.Msg{Subject: p.subject, Data: []byte(p.body), Header: nats.Header{nats.MsgIdHdr: {strangeID(p.subject)}}})
		cancel()
		if err != nil {
			return fmt.Errorf("cannot publish poison to %s: %w", p.subject, err)
		}
		m.buried++
		m.did["poison"]++
	}
	cmd := m.client.Do(m.Ctx, id, "label", map[string]any{"labels": map[string]string{"after": "poison"}}, 0)
	if cmd.Outcome != check.Applied {
		m.Violations++
		m.Say("VIOLATION others: after poison the entity answers %s %s", cmd.Outcome, cmd.Code)
	}
	return nil
}
