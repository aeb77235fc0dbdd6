// Package diagram draws machines, as Mermaid and for Graphviz.
package diagram

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
)

// Mermaid draws the machine as a Mermaid state diagram. The text depends on the table alone, so it can be compared with a file.
func Mermaid(m *machines.Machine) string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, s := range m.States {
		fmt.Fprintf(&b, "    state \"%s\" as %s\n", s.Name, mermaidID(s.Name))
	}
	for _, a := range arrows(m) {
		from, to := "[*]", mermaidID(a.to)
		if a.from != machines.None {
			from = mermaidID(a.from)
		}
		fmt.Fprintf(&b, "    %s --> %s: %s\n", from, to, strings.Join(a.labels, " · "))
	}
	for _, s := range m.States {
		if s.Terminal {
			fmt.Fprintf(&b, "    %s --> [*]\n", mermaidID(s.Name))
		}
	}
	return b.String()
}

// DOT draws the machine for Graphviz: transitional states are dashed, terminal ones have a double border. The text depends on
// the table alone.
func DOT(m *machines.Machine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR\n  node [shape=box style=rounded]\n  \"\" [shape=point]\n", m.Name)
	for _, s := range m.States {
		attr := ""
		switch {
		case s.Terminal:
			attr = " [peripheries=2]"
		case s.Transitional:
			attr = " [style=\"rounded,dashed\"]"
		}
		fmt.Fprintf(&b, "  %q%s\n", s.Name, attr)
	}
	for _, a := range arrows(m) {
		fmt.Fprintf(&b, "  %q -> %q [label=%q]\n", a.from, a.to, strings.Join(a.labels, "\n"))
	}
	b.WriteString("}\n")
	return b.String()
}

// arrow is all edges between two states.
type arrow struct {
	from, to string
	labels   []string
}

// arrows merges the edges between two states and leaves out those that change nothing, in the order of the states.
func arrows(m *machines.Machine) []arrow {
	order := map[string]int{machines.None: -1}
	for i, s := range m.States {
		order[s.Name] = i
	}
	var all []arrow
	for _, e := range m.Edges {
		if e.Noop {
			continue
		}
		label := e.On
		if e.If != "" {
			label += " [" + e.If + "]"
		}
		i := slices.IndexFunc(all, func(a arrow) bool { return a.from == e.From && a.to == e.To })
		if i < 0 {
			all = append(all, arrow{from: e.From, to: e.To})
			i = len(all) - 1
		}
		if !slices.Contains(all[i].labels, label) {
			all[i].labels = append(all[i].labels, label)
		}
	}
	slices.SortStableFunc(all, func(a, b arrow) int {
		return cmp.Or(cmp.Compare(order[a.from], order[b.from]), cmp.Compare(order[a.to], order[b.to]))
	})
	return all
}

func mermaidID(s string) string { return strings.NewReplacer(".", "_", "-", "_").Replace(s) }
