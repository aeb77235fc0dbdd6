package simulation

// What has been stored, read from the simulated server after each step: every value and every event of every entity, also those that are replaced or removed later. The
// invariants are held against it.

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// history is what was seen of all entities.
type history struct {
	entities map[string]*entity // by machine/key
	order    []*entity
	read     map[string]uint64    // by stream: the last sequence
	losses   int                  // of power, and what an operator has purged or restored
	letters  []string             // subjects of dead letters
	stored   map[uint64]time.Time // when commands were seen first, by their sequences
	attempts map[string]string    // of results, by the id of the command
	lostAt   time.Time            // of the last loss of power that cost something
}

// entity is what was seen of one.
type entity struct {
	m      *machines.Machine
	key    string
	values []value
	events []event
	ids    map[string]bool // of events
	told   uint64          // the last version whose event was seen
	bases  []uint64        // versions that need not follow the one before: the first one, and those of restores

	highest, above uint64 // versions: of all values, and of those before the last restore
	torn           bool   // a restore has taken back what became of it

	dropped bool // its value was dropped once
	purged  bool // its events were taken out on purpose, which is told as little as that they have expired
}

func (e *entity) String() string { return e.m.Name + " " + e.key }

// value is a stored value of an entity.
type value struct {
	seq        uint64
	dropped    bool                        // it is what is left of one that was dropped
	State      string                      `json:"state"`
	Version    uint64                      `json:"version"`
	Generation uint64                      `json:"generation"`
	Mark       uint64                      `json:"mark"`
	Timers     map[string]machines.Timer   `json:"timers"`
	Effects    map[string]machines.Attempt `json:"effects"`
	Data       json.RawMessage             `json:"data"`
}

// event is one event of an entity.
type event struct {
	seq      uint64
	id, typ  string
	n        uint64          // its place among the messages of its version
	numbered bool            // it belongs to a version, and is no refusal
	From     string          `json:"from"`
	To       string          `json:"to"`
	Version  uint64          `json:"version"`
	Command  string          `json:"command"`
	ID       string          `json:"commandId"`
	Actor    string          `json:"actor"`
	Data     json.RawMessage `json:"data"`
}

func (e *entity) last() *value {
	if len(e.values) == 0 {
		return nil
	}
	return &e.values[len(e.values)-1]
}

// observe reads what was stored since the last step, and holds it against the invariants.
func (w *World) observe() {
	if w.restoring {
		return
	}
	for _, m := range w.opts.Machines {
		name := streams.BucketStream(m.Plural)
		w.read(name, func(e *store.Entry) {
			key, ok := strings.CutPrefix(e.Subject, streams.BucketSubject(m.Plural, ""))
			if !ok {
				return
			}
			x := w.entityOf(m, key)
			v := value{seq: e.Seq}
			if err := json.Unmarshal(e.Data, &v); err != nil {
				w.fail("I5", "the value of %s at %d is no JSON: %v", x, e.Seq, err)
				return
			}
			v.dropped = store.Value(e.Header, "KV-Operation") != ""
			for _, i := range invariants {
				if i.value != nil {
					w.holds1(i, x, i.value(w, x, &v))
				}
			}
			x.dropped = x.dropped || v.dropped
			x.values, x.highest = append(x.values, v), max(x.highest, v.Version)
		})
	}
	w.disturbed()
	w.read(streams.CommandStream, w.sawCommand)
	w.read(streams.EventStream, w.sawEvent)
	w.read(streams.DeadStream, func(e *store.Entry) { w.history.letters = append(w.history.letters, e.Subject) })
	mending := !w.history.lostAt.IsZero() && time.Since(w.history.lostAt) < time.Minute // the passes over all entities bring back what was not synced
	for _, i := range invariants {
		if i.step != nil && !(mending && i.id != "I11") && w.server.Log(streams.EffectStream) != nil {
			w.holds1(i, nobody{}, i.step(w))
		}
	}
}

func (w *World) sawEvent(e *store.Entry) {
	parts := strings.SplitN(e.Subject, ".", 4)
	m := w.machine(parts[2])
	if m == nil {
		return
	}
	tokens := 2
	if m.Parent != "" {
		tokens = 3
	}
	keys := strings.SplitN(parts[3], ".", tokens+1)
	x := w.entityOf(m, strings.Join(keys[:tokens], "."))
	ev := event{seq: e.Seq, id: store.Value(e.Header, streams.HeaderID), typ: store.Value(e.Header, "ce-type")}
	if err := json.Unmarshal(e.Data, &ev); err != nil {
		w.fail("I3", "event %d of %s is no JSON: %v", e.Seq, x, err)
		return
	}
	if rest, ok := strings.CutPrefix(ev.id, m.Name+"/"+x.key+"/"); ok {
		version, n, _ := strings.Cut(rest, "/")
		_, err := strconv.ParseUint(version, 10, 64)
		ev.numbered = err == nil
		ev.n, _ = strconv.ParseUint(n, 10, 64)
	}
	for _, i := range invariants {
		if i.event != nil {
			w.holds1(i, x, i.event(w, x, &ev))
		}
	}
	x.ids[ev.id] = true
	x.events = append(x.events, ev)
}

// read calls f with each message of a stream that was not read yet.
func (w *World) read(stream string, f func(*store.Entry)) {
	l := w.server.Log(stream)
	if l == nil {
		return
	}
	for seq := max(w.history.read[stream]+1, l.First); seq <= l.Last; seq++ {
		if e := l.At(seq); e != nil {
			f(e)
		}
	}
	w.history.read[stream] = l.Last
}

func (w *World) entityOf(m *machines.Machine, key string) *entity {
	id := m.Name + "/" + key
	x := w.history.entities[id]
	if x == nil {
		x = &entity{m: m, key: key, ids: map[string]bool{}, bases: []uint64{w.above + 1}}
		w.history.entities[id] = x
		w.history.order = append(w.history.order, x)
	}
	return x
}

// cut forgets what a loss of power has taken.
func (h *history) cut(w *World) {
	h.lostAt = time.Now()
	h.forget()
	w.rereading = true
	w.observe()
	w.rereading = false
}

// forget lets everything be read again.
func (h *history) forget() {
	h.losses++
	h.letters = nil
	for _, x := range h.order {
		x.values, x.events, x.told = nil, nil, 0
		clear(x.ids)
	}
	clear(h.read)
	clear(h.stored)
}

func newHistory() history {
	return history{entities: map[string]*entity{}, read: map[string]uint64{}, stored: map[uint64]time.Time{}, attempts: map[string]string{}}
}
