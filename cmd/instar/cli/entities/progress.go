package entities

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// progress tells how a wait goes: a line that turns on a terminal, one line per state otherwise.
type progress struct {
	w     io.Writer
	what  string
	turns bool
	begun time.Time

	mu    sync.Mutex
	state string
	why   string

	end  chan struct{}
	gone chan struct{}
}

func startProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, turns: command.Terminal(w), begun: time.Now(), end: make(chan struct{}), gone: make(chan struct{})}
	if !p.turns {
		close(p.gone)
		return p
	}
	go p.turn()
	return p
}

// stop ends the line, and returns when nothing is written any more.
func (p *progress) stop() {
	close(p.end)
	<-p.gone
}

// at is called for every change.
func (p *progress) at(state, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.turns && (state != p.state || why != p.why) {
		fmt.Fprintln(p.w, output.Line(p.what+" "+state+colon(why)))
	}
	p.state, p.why = state, why
}

// note says something that is not about the entity.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
	fmt.Fprintln(p.w, text)
}

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

func (p *progress) turn() {
	defer close(p.gone)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		p.mu.Lock()
		text := []rune(output.Line(p.what + " " + p.state + " " + output.Age(p.begun, time.Now()) + colon(p.why)))
		fmt.Fprintf(p.w, "\r\x1b[K%c %s", frames[n%len(frames)], string(text[:min(len(text), 76)]))
		p.mu.Unlock()
		select {
		case <-p.end:
			fmt.Fprint(p.w, "\r\x1b[K")
			return
		case <-tick.C:
		}
	}
}

func colon(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
