package instances

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/api/discovery"
)

// deltas writes what is different between two lists of instances once for all watches that were told the one and are to
// be told the other: many watch the same service, and each change wakes all of them.
type deltas struct {
	mu   sync.Mutex
	kept map[span]*change
}

// span names two lists of snapshots, which are not changed any more. The lists live as long as the name is kept.
type span struct {
	from, to *discovery.Endpoint
	was, is  int
}

// change is the difference of one span; who comes first writes it.
type change struct {
	once sync.Once
	text string
}

const (
	keepDelta = time.Second // all watches of a service are woken together
	same      = `"put":[],"remove":[]`
)

// between is the members put and remove. The lists are in the order of their ids; shared says that they are of snapshots.
func (d *deltas) between(from, to []discovery.Endpoint, shared bool) string {
	if !shared {
		return difference(from, to)
	}
	at := span{was: len(from), is: len(to)}
	if at.was > 0 {
		at.from = &from[0]
	}
	if at.is > 0 {
		at.to = &to[0]
	}
	if at.from == at.to && at.was == at.is {
		return same
	}
	t := d.of(at)
	t.once.Do(func() { t.text = difference(from, to) })
	return t.text
}

// of is what is told over a span. A while after the first one, all are forgotten: they hold lists that are over.
func (d *deltas) of(at span) *change {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.kept[at]
	if t == nil {
		if d.kept == nil {
			d.kept = map[span]*change{}
			time.AfterFunc(keepDelta, d.forget)
		}
		t = &change{}
		d.kept[at] = t
	}
	return t
}

func (d *deltas) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept = nil
}

func difference(from, to []discovery.Endpoint) string {
	put, remove := []discovery.Endpoint{}, []string{}
	for i, j := 0, 0; i < len(from) || j < len(to); {
		switch order := compare(from, i, to, j); {
		case order < 0:
			remove = append(remove, from[i].InstanceID)
			i++
		case order > 0:
			put = append(put, to[j])
			j++
		default:
			if was, is := &from[i], &to[j]; was.Revision != is.Revision || was.Weight != is.Weight {
				put = append(put, *is)
			}
			i, j = i+1, j+1
		}
	}
	if len(put) == 0 && len(remove) == 0 {
		return same
	}
	raw, err := json.Marshal(struct {
		Put    []discovery.Endpoint `json:"put"`
		Remove []string             `json:"remove"`
	}{put, remove})
	if err != nil { // texts and numbers: it cannot fail
		return same
	}
	return string(raw[1 : len(raw)-1])
}

// compare orders the next of two lists; what is at its end comes last.
func compare(a []discovery.Endpoint, i int, b []discovery.Endpoint, j int) int {
	switch {
	case i == len(a):
		return 1
	case j == len(b):
		return -1
	}
	return strings.Compare(a[i].InstanceID, b[j].InstanceID)
}
