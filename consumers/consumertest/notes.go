package consumertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Notes is a [consumers.Meter] and a [consumers.Tracer] that remember what they are told.
type Notes struct {
	Mu   sync.Mutex
	List []string
	Ends map[string]int // spans that ended, by name
}

func (n *Notes) note(format string, v ...any) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.List = append(n.List, fmt.Sprintf(format, v...))
}

func (n *Notes) Transition(machine, from, to, input string, stayed time.Duration) {
	n.note("transition %s %q %q %s stayed=%v", machine, from, to, input, stayed > 0)
}
func (n *Notes) Refused(machine, code string)       { n.note("refused %s %s", machine, code) }
func (n *Notes) Conflict(machine string)            { n.note("conflict %s", machine) }
func (n *Notes) Attempt(effect, outcome string)     { n.note("attempt %s %s", effect, outcome) }
func (n *Notes) DeadLetter(consumer string)         { n.note("dead %s", consumer[:1]) }
func (n *Notes) Restarted(consumer string)          { n.note("restarted %s", consumer) }
func (n *Notes) Reconciled(machine, problem string) { n.note("reconciled %s %s", machine, problem) }
func (n *Notes) Skipped(view string)                { n.note("skipped %s", view) }
func (n *Notes) DropFailed(machine string)          { n.note("drop failed %s", machine) }

func (n *Notes) Trace(name, parent string, attributes ...string) (string, func(error)) {
	n.note("span %s below %q %v", name, parent, attributes)
	return parent + "a", func(error) {
		n.Mu.Lock()
		defer n.Mu.Unlock()
		n.Ends[name]++
	}
}

func (n *Notes) Has(want string) bool {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	return slices.Contains(n.List, want)
}

func (n *Notes) Count(prefix string) int {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	c := 0
	for _, s := range n.List {
		if strings.HasPrefix(s, prefix) {
			c++
		}
	}
	return c
}

// NewNotes remembers nothing yet.
func NewNotes() *Notes { return &Notes{Ends: map[string]int{}} }
