package index

import (
	"fmt"
	"slices"
	"strings"
)

// Op is what a [Selector] asks of a label.
type Op string

// The kinds of selectors. NotEqual also matches an item without the label, as in Kubernetes.
const (
	Equal    Op = "="
	NotEqual Op = "!="
	In       Op = "in"
	Exists   Op = "exists"
)

// Selector selects by one label.
type Selector struct {
	Label  string
	Op     Op
	Values []string // one for Equal and NotEqual, any number for In, none for Exists
	Absent string   // what an item counts as that does not have the label, and can be read; empty is nothing
}

func (s Selector) String() string {
	switch s.Op {
	case Exists:
		return s.Label
	case In:
		return s.Label + " in (" + strings.Join(s.Values, ",") + ")"
	}
	return s.Label + string(s.Op) + strings.Join(s.Values, ",")
}

// ParseSelectors reads selectors as people write them: "team=web,env!=dev,tier in (a,b),canary".
func ParseSelectors(text string) ([]Selector, error) {
	var all []Selector
	for rest := text; strings.TrimSpace(rest) != ""; {
		end := strings.IndexByte(rest, ',')
		if open := strings.IndexByte(rest, '('); open >= 0 && open < end {
			if end = strings.IndexByte(rest, ')'); end >= 0 {
				end++
			}
		}
		term := rest
		if end >= 0 && end < len(rest) {
			term, rest = rest[:end], strings.TrimSpace(rest[end:])
			if !strings.HasPrefix(rest, ",") {
				return nil, fmt.Errorf("kv: selector %q: no comma before %q", text, rest)
			}
			rest = rest[1:]
		} else {
			rest = ""
		}
		s, err := parseSelector(strings.TrimSpace(term))
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func parseSelector(term string) (Selector, error) {
	s := Selector{Label: term, Op: Exists}
	if name, list, ok := strings.Cut(term, " in "); ok {
		list = strings.TrimSpace(list)
		if !strings.HasPrefix(list, "(") || !strings.HasSuffix(list, ")") {
			return s, fmt.Errorf("kv: selector %q: values must be in brackets", term)
		}
		s = Selector{Label: name, Op: In}
		for _, v := range strings.Split(list[1:len(list)-1], ",") {
			s.Values = append(s.Values, strings.TrimSpace(v))
		}
	} else if name, value, ok := strings.Cut(term, "!="); ok {
		s = Selector{Label: name, Op: NotEqual, Values: []string{strings.TrimSpace(value)}}
	} else if name, value, ok := strings.Cut(term, "="); ok {
		s = Selector{Label: name, Op: Equal, Values: []string{strings.TrimSpace(value)}}
	}
	if s.Label = strings.TrimSpace(s.Label); s.Label == "" || strings.ContainsAny(s.Label, " ()!=,") {
		return s, fmt.Errorf("kv: selector %q: not a label", term)
	}
	return s, nil
}

// selected are the labels that exist of those that the selector names.
func (t *table) selected(s Selector) []*label {
	var found []*label
	values := t.labels[s.Label]
	for _, v := range s.Values {
		if l := values[v]; l != nil && !slices.Contains(found, l) {
			found = append(found, l)
		}
	}
	return found
}

// sets are the sets whose union holds all that match, or nil if there are none to tell.
func (s *selection) sets() []*set {
	if s.Op != Equal && s.Op != In || s.Absent != "" && slices.Contains(s.Values, s.Absent) {
		return nil
	}
	sets := make([]*set, len(s.labels))
	for i, l := range s.labels {
		sets[i] = &l.rows
	}
	return sets
}

func (s *selection) match(r *row, problems map[string]string) bool {
	l := r.labels.value(s.Label)
	if l == nil && s.Absent != "" && problems[r.key] == "" { // one that cannot be read may have it
		return s.Op == Exists || slices.Contains(s.Values, s.Absent) == (s.Op != NotEqual)
	}
	switch s.Op {
	case Exists:
		return l != nil
	case NotEqual:
		return l == nil || !slices.Contains(s.labels, l)
	}
	return l != nil && slices.Contains(s.labels, l)
}
