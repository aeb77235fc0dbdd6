package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// session is what all parts of a run share.
type session struct {
	seed uint64 // of all that is random
	long bool   // the long version: more of everything
	bin  string // the program, built with its failpoints
	dir  string // where everything is kept
}

// skipped is why a part cannot run here.
type skipped string

func (s skipped) Error() string { return string(s) }

// since is how long ago something was, as it is told.
func since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// T is one run of one part.
type T struct {
	session
	ctx  context.Context
	name string
	rand *rand.Rand
	out  io.Writer

	violations int
	ends       []func() // in reverse, when the part has ended
}

func newTorture(ctx context.Context, name string, s session, out io.Writer) *T {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return &T{session: s, ctx: ctx, name: name, rand: rand.New(rand.NewPCG(s.seed, h.Sum64())), out: out}
}

func (t *T) say(format string, args ...any) { fmt.Fprintf(t.out, "  "+format+"\n", args...) }

func (t *T) onEnd(f func()) { t.ends = append(t.ends, f) }

func (t *T) end() {
	for _, f := range slices.Backward(t.ends) {
		f()
	}
	t.ends = nil
}

// between is a random time.
func (t *T) between(least, most time.Duration) time.Duration {
	return least + time.Duration(t.rand.Int64N(int64(most-least)))
}

// amount is how much of something: more in the long version.
func (t *T) amount(short, long int) int {
	if t.long {
		return long
	}
	return short
}

// instar is a server that dies with the part.
func (t *T) instar(name, url string, args ...string) (*rig.Instar, error) {
	i, err := rig.New(t.bin, t.dir+"-"+name, url, args...)
	if err != nil {
		return nil, err
	}
	t.onEnd(func() {
		if i.Process != nil {
			i.Kill()
		}
	})
	return i, nil
}

// serving is an instar that is up.
func (t *T) serving(name, url string, args ...string) (*rig.Instar, error) {
	i, err := t.instar(name, url, args...)
	if err != nil {
		return nil, err
	}
	return i, i.Serve(t.ctx)
}

// reader is connected until the part ends.
func (t *T) reader(url string) (*rig.Reader, error) {
	r, err := rig.OpenReader(url)
	if err == nil {
		t.onEnd(r.Close)
	}
	return r, err
}

// judge prints the violations of a history with the stories of the first entities that they are about.
func (t *T) judge(h *check.History) {
	found := check.Check(h)
	t.violations += len(found)
	told := map[string]bool{}
	for i, v := range found {
		if i < 50 {
			t.say("VIOLATION %s", v)
		}
		if v.Key != "" && !told[v.Key] && len(told) < 3 {
			told[v.Key] = true
			check.Story(t.out, h, v.Key)
		}
	}
}

// settleAndJudge waits until nothing is under way, and checks everything. tell adds what the part knows.
func (t *T) settleAndJudge(r *rig.Reader, journal *load.Journal, most time.Duration, tell func(*check.History)) error {
	h, err := r.Settle(t.ctx, most)
	if h == nil {
		return err
	}
	if err != nil {
		t.violations++
		t.say("VIOLATION rest: %v", err)
	}
	h.Commands, h.Late = append(h.Commands, journal.Commands()...), 15*time.Second
	if tell != nil {
		tell(h)
	}
	t.judge(h)
	t.count(journal.Figures())
	t.say("%d entities, %d events; %d commands were refused, unheard, and decided anew", len(h.Values), len(h.Events), check.Redecided(h))
	return nil
}

func (t *T) count(f load.Figures) {
	t.say("commands: %d sent in %d tries, %d acknowledged: %d applied, %d unchanged, %d refused, %d dead, %d unknown; %d answered as duplicates, %d never answered",
		f.Sent, f.Tries, f.Acknowledged, f.Applied, f.Unchanged, f.Refused, f.Dead, f.Unknown, f.Duplicates, f.Unanswered)
}

// times are measured, and told by their middle and their worst.
type times []time.Duration

func (d times) String() string {
	if len(d) == 0 {
		return "none"
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return fmt.Sprintf("p50 %s, max %s of %d", s[len(s)/2].Round(time.Millisecond), s[len(s)-1].Round(time.Millisecond), len(s))
}
