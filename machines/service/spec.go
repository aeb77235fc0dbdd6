package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// What a policy says when it does not say otherwise.
const (
	defaultFailures         = 3
	defaultProgressDeadline = 10 * time.Minute
	defaultDeleteDeadline   = 2 * time.Minute
)

func (p *Policy) failureThreshold() int { return or(p.FailureThreshold, defaultFailures) }
func (p *Policy) degradeThreshold() int { return or(p.DegradeThreshold, defaultFailures) }

func (p *Policy) progressDeadline() time.Duration {
	return or(time.Duration(p.ProgressDeadlineSeconds)*time.Second, defaultProgressDeadline)
}

func (p *Policy) deleteDeadline() time.Duration {
	return or(time.Duration(p.DeleteDeadlineSeconds)*time.Second, defaultDeleteDeadline)
}

func or[N int | time.Duration](v, otherwise N) N {
	if v > 0 {
		return v
	}
	return otherwise
}

// Hash is the hash of what the specification wants. That it is to replace what runs is not part of it.
func (s Spec) Hash() string {
	s.ForceReplace = false
	h, err := machines.Hash(s)
	if err != nil {
		panic(fmt.Sprintf("service: a spec of texts and numbers has no hash: %v", err))
	}
	return h
}

// keepConverged is called before another specification is wanted: until then the one that is READY is not stored twice. Where a program that does not know that has replaced it,
// it is lost, and nothing else may stand in for it.
func (d *Data) keepConverged() {
	if d.Converged != nil && d.Converged.Spec == nil && d.Converged.Hash == d.SpecHash {
		c := *d.Converged
		c.Spec = d.Spec
		d.Converged = &c
	}
}

// target is what rollback goes back to, or nil. One before the last that was READY is no target while that one is lost (see keepConverged).
func (d *Data) target() *Accepted {
	if c := d.Converged; c != nil && c.Spec == nil && c.Hash != d.SpecHash {
		return nil
	}
	for _, a := range []*Accepted{d.Converged, d.Previous} {
		if a != nil && a.Spec != nil && a.Hash != d.SpecHash {
			return a
		}
	}
	return nil
}

// serving is the revision that gets the traffic, as far as it was seen to answer.
func (d *Data) serving() string {
	if d.Snapshot == nil || !d.Snapshot.Exists || d.Snapshot.Route == machines.False {
		return ""
	}
	return d.Snapshot.Serving
}

// keeps says which revision serves while the wanted one does not.
func (d *Data) keeps() string {
	if r := d.serving(); r != "" {
		return "revision " + r + " keeps serving"
	}
	return ""
}

// change is one field of a specification that another one changes.
type change struct {
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// diff lists what changes from one specification to another by dotted fields. Values of the environment may be
// secrets and events are kept for years: only their names are told.
func diff(from, to *Spec) map[string]change {
	before, after := flat(from), flat(to)
	changes := map[string]change{}
	for name, v := range after {
		if before[name] != v {
			changes[name] = change{before[name], v}
		}
	}
	for name, v := range before {
		if _, ok := after[name]; !ok {
			changes[name] = change{From: v}
		}
	}
	for name, c := range changes {
		if strings.HasPrefix(name, "env.") {
			changes[name] = change{hide(c.From), hide(c.To)}
		}
	}
	return changes
}

func hide(v string) string {
	if v == "" {
		return ""
	}
	return "(set)"
}

func flat(s *Spec) map[string]string {
	all := map[string]string{}
	if s == nil {
		return all
	}
	plain := *s
	plain.ForceReplace = false
	raw, _ := json.Marshal(plain) // texts and numbers
	var tree map[string]any
	_ = json.Unmarshal(raw, &tree) // it was just written
	flatten("", tree, all)
	return all
}

func flatten(prefix string, tree map[string]any, into map[string]string) {
	for name, v := range tree {
		if sub, ok := v.(map[string]any); ok {
			flatten(prefix+name+".", sub, into)
		} else {
			into[prefix+name] = fmt.Sprint(v)
		}
	}
}
