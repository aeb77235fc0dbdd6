package entities

import (
	"slices"

	"github.com/bcc94042/instar/machines"
)

// Graph is the machine as data: what clients draw from.
type Graph struct {
	Name     string                `json:"name"`
	Plural   string                `json:"plural"`
	Parent   string                `json:"parent,omitempty"`
	Doc      string                `json:"doc,omitempty"`
	States   []machines.StateInfo  `json:"states"`
	Commands []CommandInfo         `json:"commands"`
	Effects  []machines.EffectInfo `json:"effects"`
	Events   []machines.EventType  `json:"events"`
	Edges    []machines.EdgeInfo   `json:"edges"`
	Columns  []machines.Column     `json:"columns,omitempty"`
	Views    []machines.View       `json:"views,omitempty"`
}

// CommandInfo is an input as readers see it.
type CommandInfo struct {
	Name        string   `json:"name"`
	Doc         string   `json:"doc,omitempty"`
	Report      bool     `json:"report"`
	Birth       bool     `json:"birth,omitempty"`
	Admin       bool     `json:"admin,omitempty"`
	Destructive bool     `json:"destructive,omitempty"`
	Replaces    bool     `json:"replaces,omitempty"`
	From        []string `json:"from"` // the states that have an edge for it; empty text is "does not exist"
}

// Graphs are machines as data.
func Graphs(ms []*machines.Machine) []Graph {
	all := make([]Graph, len(ms))
	for i, m := range ms {
		all[i] = GraphOf(m)
	}
	return all
}

// Machine is the machine of a graph: described, so that it can be asked but takes no input. The bodies of its commands are any objects.
func (g Graph) Machine() *machines.Machine {
	m := &machines.Machine{Name: g.Name, Plural: g.Plural, Parent: g.Parent, Doc: g.Doc, States: g.States, Effects: g.Effects, Events: g.Events, Edges: g.Edges, Columns: g.Columns, Views: g.Views}
	for _, c := range g.Commands {
		m.Inputs = append(m.Inputs, machines.Command{Name: c.Name, Doc: c.Doc, Report: c.Report, Birth: c.Birth, Admin: c.Admin, Destructive: c.Destructive, Replaces: c.Replaces, Body: map[string]any{}})
	}
	return machines.Described(m)
}

// GraphOf is a machine as data.
func GraphOf(m *machines.Machine) Graph {
	g := Graph{Name: m.Name, Plural: m.Plural, Parent: m.Parent, Doc: m.Doc, States: m.States, Effects: append([]machines.EffectInfo{}, m.Effects...), Events: append([]machines.EventType{}, m.Events...), Edges: m.Edges, Columns: m.Columns, Views: m.Views}
	for _, c := range m.Inputs {
		info := CommandInfo{Name: c.Name, Doc: c.Doc, Report: c.Report, Birth: c.Birth, Admin: c.Admin, Destructive: c.Destructive, Replaces: c.Replaces, From: []string{}}
		for _, e := range m.Edges {
			if e.On == c.Name && !slices.Contains(info.From, e.From) {
				info.From = append(info.From, e.From)
			}
		}
		g.Commands = append(g.Commands, info)
	}
	return g
}
