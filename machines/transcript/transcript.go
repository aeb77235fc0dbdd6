// Package transcript runs a machine from a text and writes down what it did, so that behaviour is reviewed as a diff.
//
// A file under testdata is a list of lines; every line that does not begin with a blank is kept, what follows it is
// rewritten when the test runs with -update:
//
//	# a comment
//	+10s                       time goes on
//	create {"spec": ...}       an input, with its body
//	report applied {...}       a report of the attempt under way, with its data
//	fail apply {"code": ...}   a provider's failure of the effect under way
//	fire deadline              the timer fires at its time
//	    READY v3 g1 ...        what followed
package transcript

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// Update is set by -update: the files are written anew.
var Update = flag.Bool("update", false, "write testdata anew")

// Run checks every transcript that matches the pattern.
func Run(t *testing.T, m *machines.Machine, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, "no transcript matches %s", pattern)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			got := Play(m, string(text))
			if *Update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(text), got, "behaviour changed; run with -update and read the diff")
		})
	}
}

// Play runs the inputs of a transcript and returns it with what followed each of them.
func Play(m *machines.Machine, text string) string {
	p := &player{m: m, e: m.New("default", parentOf(m), "web"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, " ") {
			continue
		}
		p.out.WriteString(line + "\n")
		if line != "" && !strings.HasPrefix(line, "#") {
			p.line(line)
		}
	}
	return p.out.String()
}

func parentOf(m *machines.Machine) string {
	if m.Parent == "" {
		return ""
	}
	return "parent"
}

type player struct {
	m   *machines.Machine
	e   machines.Entity
	now time.Time
	seq uint64
	out strings.Builder
}

func (p *player) say(format string, args ...any) { fmt.Fprintf(&p.out, "    "+format+"\n", args...) }

func (p *player) line(line string) {
	word, rest, _ := strings.Cut(line, " ")
	if d, ok := strings.CutPrefix(word, "+"); ok {
		wait, err := time.ParseDuration(d)
		if err != nil {
			p.say("error: %v", err)
			return
		}
		p.now = p.now.Add(wait)
		return
	}
	in := machines.Input{Command: word, Body: json.RawMessage(rest)}
	var err error
	switch word {
	case "report":
		in, err = p.report(rest)
	case "fail":
		in, err = p.failure(rest)
	case "fire":
		in, err = p.fire(rest)
	}
	if err != nil {
		p.say("error: %v", err)
		return
	}
	p.step(in)
}

func (p *player) report(rest string) (machines.Input, error) {
	name, data, _ := strings.Cut(rest, " ")
	r := machines.Report{Data: json.RawMessage(data)}
	if stale, d, ok := strings.Cut(data, " "); ok && strings.HasPrefix(stale, "@") {
		r = machines.Report{Attempt: stale[1:], Data: json.RawMessage(d)} // a late answer, written as @attempt
	} else {
		for _, fx := range p.m.Effects {
			if a, under := p.e.Effects[fx.Name]; under && fx.Done == name {
				r.Attempt = a.ID
			}
		}
	}
	if len(r.Data) == 0 {
		r.Data = nil
	}
	body, err := json.Marshal(r)
	return machines.Input{Command: name, Body: body}, err
}

func (p *player) failure(rest string) (machines.Input, error) {
	effect, data, _ := strings.Cut(rest, " ")
	var f machines.Failure
	if err := json.Unmarshal([]byte(data), &f); err != nil {
		return machines.Input{}, err
	}
	body, err := json.Marshal(machines.EffectFailed{Effect: effect, Attempt: p.e.Effects[effect].ID, Failure: f})
	return machines.Input{Command: machines.CommandFailed, Body: body}, err
}

func (p *player) fire(name string) (machines.Input, error) {
	timer, ok := p.e.Timers[name]
	if !ok {
		return machines.Input{}, fmt.Errorf("no timer %s", name)
	}
	if timer.At.After(p.now) {
		p.now = timer.At
	}
	body, err := json.Marshal(machines.Elapsed{Timer: name, Armed: timer.Armed})
	return machines.Input{Command: machines.CommandElapsed, Body: body}, err
}

func (p *player) step(in machines.Input) {
	p.seq++
	in.Seq, in.ID, in.Time, in.Actor = p.seq, fmt.Sprintf("c%d", p.seq), p.now, "test"
	next, out, err := p.m.Step(p.e, in)
	var refusal *machines.Refusal
	switch {
	case errors.As(err, &refusal):
		p.say("refused %s: %s", refusal.Code, refusal.Message)
		if len(refusal.Allowed) > 0 {
			p.say("  allowed: %s", strings.Join(refusal.Allowed, " "))
		}
		return
	case err != nil:
		p.say("error: %v", err)
		return
	case out.Result != machines.Applied:
		p.say("%s", out.Result)
		return
	}
	p.e = next
	from := out.From
	if from == machines.None {
		from = "(none)"
	}
	p.say("%s -> %s v%d g%d", from, out.To, next.Version, next.Generation)
	for _, msg := range out.Messages {
		p.message(msg)
	}
	for _, c := range next.Conditions {
		p.say("  condition %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if next.LastError != nil {
		p.say("  error %s: %s", next.LastError.Code, next.LastError.Message)
	}
	p.say("  allowed: %s", strings.Join(p.m.Allowed(next.State), " "))
}

func (p *player) message(msg machines.Message) {
	switch msg.Kind {
	case machines.KindEvent:
		var ev machines.Event
		if err := json.Unmarshal(msg.Body, &ev); err != nil {
			p.say("error: %v", err)
		}
		data := ""
		if ev.Data != nil {
			raw, _ := json.Marshal(ev.Data) // it was just decoded
			data = " " + string(raw)
		}
		p.say("  event %s%s", msg.Name, data)
	case machines.KindEffect:
		var task machines.Task
		if err := json.Unmarshal(msg.Body, &task); err != nil {
			p.say("error: %v", err)
		}
		p.say("  effect %s %s %s", msg.Name, task.Attempt, task.Data)
	case machines.KindTimer:
		p.say("  timer %s at +%s", msg.Name, msg.At.Sub(p.now))
	}
}

// Edges plays all transcripts of a pattern and returns the edges (from, input, to) that they took, so that a test can
// require that no row of the table goes unseen.
func Edges(t *testing.T, m *machines.Machine, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	var seen []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, line := range strings.Split(string(text), "\n") {
			if from, to, ok := strings.Cut(strings.TrimSpace(line), " -> "); ok && strings.HasPrefix(line, "    ") {
				to, _, _ = strings.Cut(to, " ")
				seen = append(seen, from+" -> "+to)
			}
		}
	}
	slices.Sort(seen)
	return slices.Compact(seen)
}
