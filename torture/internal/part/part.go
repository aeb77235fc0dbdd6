package part

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

// Session is what all parts of a run share.
type Session struct {
	Seed uint64 // of all that is random
	Long bool   // the long version: more of everything
	Bin  string // the program, built with its failpoints
	Dir  string // where everything is kept
}

// Skipped is why a part cannot run here.
type Skipped string

func (s Skipped) Error() string { return string(s) }

// Since is how long ago something was, as it is told.
func Since(t time.Time) time.Duration { return time.Since(t).Round(time.Millisecond) }

// T is one run of one part.
type T struct {
	Session
	Ctx  context.Context
	name string
	Rand *rand.Rand
	out  io.Writer

	Violations int
	ends       []func() // in reverse, when the part has ended
}

func New(ctx context.Context, name string, s Session, out io.Writer) *T {
	h := fnv.New64a()
	h.Write([]byte(name)) // never fails
	return &T{Session: s, Ctx: ctx, name: name, Rand: rand.New(rand.NewPCG(s.Seed, h.Sum64())), out: out}
}

func (t *T) Say(format string, args ...any) { fmt.Fprintf(t.out, "  "+format+"\n", args...) }

func (t *T) OnEnd(f func()) { t.ends = append(t.ends, f) }

func (t *T) End() {
	for _, f := range slices.Backward(t.ends) {
		f()
	}
	t.ends = nil
}

// Between is a random time.
func (t *T) Between(least, most time.Duration) time.Duration {
	return least + time.Duration(t.Rand.Int64N(int64(most-least)))
}

// Amount is how much of something: more in the long version.
func (t *T) Amount(short, long int) int {
	if t.Long {
		return long
	}
	return short
}

// Instar is a server that dies with the part.
func (t *T) Instar(name, url string, args ...string) (*rig.Instar, error) {
	i, err := rig.New(t.Bin, t.Dir+"-"+name, url, args...)
	if err != nil {
		return nil, err
	}
	t.OnEnd(func() {
		if i.Process != nil {
			i.Kill()
		}
	})
	return i, nil
}

// Serving is an instar that is up.
func (t *T) Serving(name, url string, args ...string) (*rig.Instar, error) {
	i, err := t.Instar(name, url, args...)
	if err != nil {
		return nil, err
	}
	return i, i.Serve(t.Ctx)
}

// Reader is connected until the part ends.
func (t *T) Reader(url string) (*rig.Reader, error) {
	r, err := rig.OpenReader(url)
	if err == nil {
		t.OnEnd(r.Close)
	}
	return r, err
}

// judge prints the violations of a history with the stories of the first entities that they are about.
func (t *T) judge(h *check.History) {
	found := check.Check(h)
	t.Violations += len(found)
	told := map[string]bool{}
	for i, v := range found {
		if i < 50 {
			t.Say("VIOLATION %s", v)
		}
		if v.Key != "" && !told[v.Key] && len(told) < 3 {
			told[v.Key] = true
			check.Story(t.out, h, v.Key)
		}
	}
}

// SettleAndJudge waits until nothing is under way, and checks everything. tell adds what the part knows.
func (t *T) SettleAndJudge(r *rig.Reader, journal *load.Journal, most time.Duration, tell func(*check.History)) error {
	h, err := r.Settle(t.Ctx, most)
	if h == nil {
		return err
	}
	if err != nil {
		t.Violations++
		t.Say("VIOLATION rest: %v", err)
	}
	h.Commands, h.Late = append(h.Commands, journal.Commands()...), 15*time.Second
	if tell != nil {
		tell(h)
	}
	t.judge(h)
	t.count(journal.Figures())
	t.Say("%d entities, %d events; %d commands were refused, unheard, and decided anew", len(h.Values), len(h.Events), check.Redecided(h))
	return nil
}

func (t *T) count(f load.Figures) {
	t.Say("commands: %d sent in %d tries, %d acknowledged: %d applied, %d unchanged, %d refused, %d dead, %d unknown; %d answered as duplicates, %d never answered",
		f.Sent, f.Tries, f.Acknowledged, f.Applied, f.Unchanged, f.Refused, f.Dead, f.Unknown, f.Duplicates, f.Unanswered)
}

// Times are measured, and told by their middle and their worst.
type Times []time.Duration

func (d Times) String() string {
	if len(d) == 0 {
		return "none"
	}
	s := slices.Clone(d)
	slices.Sort(s)
	return fmt.Sprintf("p50 %s, max %s of %d", s[len(s)/2].Round(time.Millisecond), s[len(s)-1].Round(time.Millisecond), len(s))
}
