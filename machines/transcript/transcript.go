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
//
// In an input "$data.specHash" stands for the text at that path of the entity.
package transcript

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
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
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644)) // #nosec G306 -- a file of the repository
				return
			}
			require.Equal(t, string(text), got, "behaviour changed; run with -update and read the diff")
		})
	}
}

// Cover requires that every edge of the machine is taken in some transcript that matches the pattern.
func Cover(t *testing.T, m *machines.Machine, pattern string) {
	t.Helper()
	if *Update {
		t.Skip("the transcripts are being written")
	}
	require.Empty(t, Untaken(t, m, pattern))
}

// Diagrams checks testdata/<machine>.mmd and .dot.
func Diagrams(t *testing.T, m *machines.Machine) {
	t.Helper()
	for ending, drawn := range map[string]string{".mmd": diagram.Mermaid(m), ".dot": diagram.DOT(m)} {
		file := filepath.Join("testdata", m.Name+ending)
		if *Update {
			require.NoError(t, os.WriteFile(file, []byte(drawn), 0o644)) // #nosec G306 -- a file of the repository
		}
		golden, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(golden), drawn, "the table changed; run with -update and read the diff")
	}
}

// Play runs the inputs of a transcript and returns it with what followed each of them. The entity is default.web (default.parent.web
// of a machine with a parent), the clock begins at 2026-01-26 17:00:00 UTC and moves only with lines of +time and fire. It never
// fails: a line that cannot be run is followed by the error.
func Play(m *machines.Machine, text string) string { return play(m, text).out.String() }

func play(m *machines.Machine, text string) *player {
	p := &player{m: m, taken: map[string]bool{}, e: m.New("default", parentOf(m), "web"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
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
	return p
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

	taken map[string]bool // edges
}

func (p *player) say(format string, args ...any) {
	p.out.WriteString(strings.TrimRight(fmt.Sprintf("    "+format, args...), " ") + "\n")
}

func (p *player) line(line string) {
	word, rest, _ := strings.Cut(p.resolve(line), " ")
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

var reference = regexp.MustCompile(`\$[a-z][A-Za-z0-9]*(\.[A-Za-z0-9]+)*`)

// resolve puts the texts of the entity in the places of their paths. A path that leads nowhere stays.
func (p *player) resolve(line string) string {
	if !strings.Contains(line, "$") {
		return line
	}
	raw, err := json.Marshal(p.e)
	if err != nil {
		return line
	}
	var tree any
	_ = json.Unmarshal(raw, &tree) // it was just written
	return reference.ReplaceAllStringFunc(line, func(ref string) string {
		at := tree
		for _, name := range strings.Split(ref[1:], ".") {
			node, _ := at.(map[string]any)
			at = node[name]
		}
		if text, ok := at.(string); ok {
			return text
		}
		return ref
	})
}

func (p *player) report(rest string) (machines.Input, error) {
	name, data, _ := strings.Cut(rest, " ")
	r := machines.Report{Data: json.RawMessage(data)}
	if stale, d, _ := strings.Cut(data, " "); strings.HasPrefix(stale, "@") {
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
	by := ""
	if out.Edge != nil {
		p.taken[edge(out.Edge)] = true
		by = " on " + cause(out.Edge)
	}
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
		p.say("%s%s", out.Result, by)
		return
	}
	p.e = next
	p.say("%s -> %s v%d g%d%s", stateName(out.From), out.To, next.Version, next.Generation, by)
	for _, msg := range out.Messages {
		p.message(msg)
	}
	for _, c := range next.Conditions {
		p.say("  condition %s=%s %s %s", c.Type, c.Status, c.Reason, c.Message)
	}
	if next.LastError != nil {
		p.say("  error %s: %s", next.LastError.Code, next.LastError.Message)
	}
	if out.From != out.To {
		p.say("  allowed: %s", strings.Join(p.m.Allowed(next.State), " "))
	}
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
		p.say("  effect %s %s %s", msg.Queue(), task.Attempt, task.Data)
	case machines.KindTimer:
		p.say("  timer %s at +%s", msg.Name, msg.At.Sub(p.now))
	}
}

// Untaken plays all transcripts of a pattern and returns the edges of the table that none of them took, so that a test
// can require that no row goes unseen.
func Untaken(t *testing.T, m *machines.Machine, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	taken := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		p := play(m, string(text))
		for edge := range p.taken {
			taken[edge] = true
		}
	}
	var untaken []string
	for i := range m.Edges {
		if e := edge(&m.Edges[i]); !taken[e] {
			untaken = append(untaken, e)
		}
	}
	return untaken
}

// edge writes an edge as a line that is its own: two edges of a state and an input differ in their guards.
func edge(e *machines.EdgeInfo) string {
	return stateName(e.From) + " -> " + stateName(e.To) + " on " + cause(e)
}

func cause(e *machines.EdgeInfo) string {
	if e.If == "" {
		return e.On
	}
	return e.On + " [" + e.If + "]"
}

func stateName(s string) string {
	if s == machines.None {
		return "(none)"
	}
	return s
}
