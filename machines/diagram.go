package machines

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mermaid draws the machine as a Mermaid state diagram. The text depends on the table alone, so it can be compared with a file.
func (m *Machine) Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, s := range m.States {
		fmt.Fprintf(&b, "    state \"%s\" as %s\n", s.Name, mermaidID(s.Name))
	}
	for _, a := range m.arrows() {
		from, to := "[*]", mermaidID(a.to)
		if a.from != None {
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
func (m *Machine) DOT() string {
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
	for _, a := range m.arrows() {
		fmt.Fprintf(&b, "  %q -> %q [label=%q]\n", a.from, a.to, strings.Join(a.labels, "\n"))
	}
	b.WriteString("}\n")
	return b.String()
}

// Graph is the machine as data: what clients draw from.
type Graph struct {
	Name     string        `json:"name"`
	Plural   string        `json:"plural"`
	Parent   string        `json:"parent,omitempty"`
	Doc      string        `json:"doc,omitempty"`
	States   []StateInfo   `json:"states"`
	Commands []CommandInfo `json:"commands"`
	Effects  []EffectInfo  `json:"effects"`
	Events   []EventType   `json:"events"`
	Edges    []EdgeInfo    `json:"edges"`
	Columns  []Column      `json:"columns,omitempty"`
	Views    []View        `json:"views,omitempty"`
}

// CommandInfo is an input as readers see it.
type CommandInfo struct {
	Name        string   `json:"name"`
	Doc         string   `json:"doc,omitempty"`
	Report      bool     `json:"report"`
	Birth       bool     `json:"birth,omitempty"`
	Admin       bool     `json:"admin,omitempty"`
	Destructive bool     `json:"destructive,omitempty"`
	From        []string `json:"from"` // the states that have an edge for it; empty text is "does not exist"
}

// Graph returns the machine as data.
func (m *Machine) Graph() Graph {
	g := Graph{Name: m.Name, Plural: m.Plural, Parent: m.Parent, Doc: m.Doc, States: m.States, Effects: append([]EffectInfo{}, m.Effects...), Events: append([]EventType{}, m.Events...), Edges: m.Edges, Columns: m.Columns, Views: m.Views}
	for _, c := range m.Inputs {
		info := CommandInfo{Name: c.Name, Doc: c.Doc, Report: c.Report, Birth: c.Birth, Admin: c.Admin, Destructive: c.Destructive, From: []string{}}
		for _, e := range m.Edges {
			if e.On == c.Name && !slices.Contains(info.From, e.From) {
				info.From = append(info.From, e.From)
			}
		}
		g.Commands = append(g.Commands, info)
	}
	return g
}

// arrow is all edges between two states.
type arrow struct {
	from, to string
	labels   []string
}

// arrows merges the edges between two states and leaves out those that change nothing, in the order of the states.
func (m *Machine) arrows() []arrow {
	order := map[string]int{None: -1}
	for i, s := range m.States {
		order[s.Name] = i
	}
	var arrows []arrow
	for _, e := range m.Edges {
		if e.Noop {
			continue
		}
		label := e.On
		if e.If != "" {
			label += " [" + e.If + "]"
		}
		i := slices.IndexFunc(arrows, func(a arrow) bool { return a.from == e.From && a.to == e.To })
		if i < 0 {
			arrows = append(arrows, arrow{from: e.From, to: e.To})
			i = len(arrows) - 1
		}
		if !slices.Contains(arrows[i].labels, label) {
			arrows[i].labels = append(arrows[i].labels, label)
		}
	}
	slices.SortStableFunc(arrows, func(a, b arrow) int {
		return cmp.Or(cmp.Compare(order[a.from], order[b.from]), cmp.Compare(order[a.to], order[b.to]))
	})
	return arrows
}

func mermaidID(s string) string { return strings.NewReplacer(".", "_", "-", "_").Replace(s) }
