// Package watchers keeps who watches a service, and the revision that each of them acts on.
package watchers

import "time"

const (
	// Life is how long a watcher is one without a confirmation: who listened for so long knows all that are not.
	Life = 30 * time.Second
	// Max is how many there may be of one service, and of all services without instances together.
	Max = 10000
	// MaxName bounds the name of one, in bytes: over HTTP, that of the token is in it.
	MaxName = 640
)

// Watcher is somebody who confirms the revisions of a service that it acts on.
type Watcher struct {
	Index uint64 // as it said last: one that begins anew, or shares its name with another, may have less than before
	At    time.Duration
}

// Strays are the watchers of services without instances.
type Strays struct {
	Count  int
	Turned time.Duration // when one was turned away; 0 is never
}

// Full reports whether there may be no more of them, and notes who is turned away.
func (s *Strays) Full(now time.Duration) bool {
	if s.Count < Max {
		return false
	}
	s.Turned = now
	return true
}

// Watchers are those of one service. Who is turned away is waited for: a drain does not end early for Life.
type Watchers struct {
	Turned time.Duration // when one was turned away, because there are too many; 0 is never
	list   map[string]Watcher
}

// Len is how many there are.
func (w *Watchers) Len() int { return len(w.list) }

// Clear forgets all of them.
func (w *Watchers) Clear() { clear(w.list) }

// Of is the watcher of a name.
func (w *Watchers) Of(name string) Watcher { return w.list[name] }

// Prune forgets those that were not heard for their life. What was said while this node heard nothing, before unheard, is not missed.
func (w *Watchers) Prune(now, unheard time.Duration) {
	for name, v := range w.list {
		if now-max(v.At, unheard) > Life {
			delete(w.list, name)
		}
	}
}

// Confirm takes what a watcher says, and returns what it said before. A new one that finds no room is turned away: strays are the others
// if the service has no instances, and nil if it has.
func (w *Watchers) Confirm(name string, index uint64, now time.Duration, strays *Strays) (before uint64, taken bool) {
	old, known := w.list[name]
	switch {
	case known:
	case len(w.list) >= Max:
		w.Turned = now
		return 0, false
	case strays != nil && strays.Full(now):
		return 0, false
	case strays != nil:
		strays.Count++
	}
	if w.list == nil {
		w.list = map[string]Watcher{}
	}
	w.list[name] = Watcher{index, now}
	return old.Index, true
}

// All reports whether all that live act on something, and how many they are. It is false while one that was turned away may still watch.
func (w *Watchers) All(now, unheard time.Duration, acts func(Watcher) bool) (n int, all bool) {
	if w.Turned != 0 && now-w.Turned < Life {
		return 0, false
	}
	for _, v := range w.list {
		if now-max(v.At, unheard) > Life {
			continue
		}
		if !acts(v) {
			return 0, false
		}
		n++
	}
	return n, true
}
