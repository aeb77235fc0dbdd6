package load

import (
	"sync"
	"time"

	"github.com/bcc94042/instar/torture/internal/check"
)

// Journal is the log of all clients.
type Journal struct {
	mu       sync.Mutex
	commands []*check.Command
	since    time.Time      // of waiter: a try that was sent before does not count
	waiter   chan time.Time // told of the next answer
}

// Commands is a copy of the log.
func (j *Journal) Commands() []check.Command {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]check.Command, len(j.commands))
	for i, c := range j.commands {
		list[i] = *c
	}
	return list
}

// NextAnswer is told when the first try that is sent from now on was answered.
func (j *Journal) NextAnswer() <-chan time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.since, j.waiter = time.Now(), make(chan time.Time, 1)
	return j.waiter
}

func (j *Journal) begin(c check.Command) *check.Command {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Sent = time.Now()
	j.commands = append(j.commands, &c)
	return &c
}

// note keeps what one try brought and reports whether it was an answer.
func (j *Journal) note(c *check.Command, tried time.Time, a answer) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Tries++
	c.Stored = c.Stored || a.stored
	if a.outcome == "" {
		return false
	}
	c.Answered = time.Now()
	c.Outcome, c.Code, c.State, c.Version, c.Revision, c.Duplicate = a.outcome, a.code, a.State, a.Version, a.Revision, a.Duplicate
	if j.waiter != nil && tried.After(j.since) {
		j.waiter <- c.Answered
		j.waiter = nil
	}
	return true
}

// Figures counts what the log holds.
type Figures struct {
	Sent, Tries, Acknowledged, Applied, Unchanged, Refused, Dead, Unknown, Duplicates, Unanswered int
}

// Add adds other figures.
func (f *Figures) Add(o Figures) {
	f.Sent += o.Sent
	f.Tries += o.Tries
	f.Acknowledged += o.Acknowledged
	f.Applied += o.Applied
	f.Unchanged += o.Unchanged
	f.Refused += o.Refused
	f.Dead += o.Dead
	f.Unknown += o.Unknown
	f.Duplicates += o.Duplicates
	f.Unanswered += o.Unanswered
}

// Figures counts.
func (j *Journal) Figures() Figures {
	var f Figures
	for _, c := range j.Commands() {
		f.Sent++
		f.Tries += c.Tries
		if c.Duplicate {
			f.Duplicates++
		}
		if c.Outcome != "" {
			f.Acknowledged++
		}
		switch c.Outcome {
		case check.Applied:
			f.Applied++
		case check.Unchanged, check.Ignored:
			f.Unchanged++
		case check.Refused:
			f.Refused++
		case check.Dead:
			f.Dead++
		case check.Unknown:
			f.Unknown++
		default:
			f.Unanswered++
		}
	}
	return f
}
