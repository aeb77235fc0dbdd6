package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/streams"
)

// Aimed is the schedule of a seed in which one kind of fault strikes again and again, while clients go on for long enough to see what comes of it. The kind is one such as "again", or, with
// the moment that it waits for, "zombie@timer"; none leaves the schedule as it is. Behind "tasks/", or with "tasks" alone, tasks are queued and run in all seeds. So it takes tens of seeds to show what comes of a guard that is missing, instead of thousands.
func Aimed(o Options, what string) Options {
	what, tasks := ofTasks(what)
	if tasks && !o.Tasks {
		o = withTasks(o)
		o.Faults = slices.DeleteFunc(o.Faults, func(f Fault) bool { return f.Kind == "restore" })
	}
	if what == "" {
		return o
	}
	name, at, _ := strings.Cut(what, "@")
	r := Draws(o.Seed, 6)
	profile := o.Profile
	o.Attached, o.Nodes, o.Replicas, o.Profile = true, 2+r.IntN(2), 3, Fsync
	if name == "server-power" {
		o.Replicas, o.Profile = 1, OS
	}
	if i := slices.IndexFunc(kinds, func(k kind) bool { return k.kind == name }); i >= 0 && kinds[i].fits != nil && !kinds[i].fits(o) {
		o.Attached, o.Nodes, o.Replicas, o.Profile = false, 1, 0, profile // it is one of a server in the process of a node
	}
	if name == "restore" && o.Tasks {
		o.Tasks, o.Machines = false, o.Machines[:1]
	}
	o.Clients, o.Commands, o.Pace = max(o.Clients, 2), 30, 2*time.Second
	o.Faults = nil
	for range 1 + r.IntN(4) {
		f := Fault{Step: r.IntN(o.Clients * o.Commands * 20), Kind: name, Who: r.IntN(64), For: time.Duration(r.Int64N(int64(16 * time.Second))), Lose: r.IntN(2) == 0, At: at}
		if at != "" {
			f.Nth = r.IntN(3)
		}
		if name == "zombie" && r.IntN(2) == 0 { // the streams have forgotten its ids when it wakes
			f.For += streams.EventWindow
		}
		o.Faults = append(o.Faults, f)
	}
	return o
}

// ofTasks is an aim without the word that has tasks take part, and whether it has that.
func ofTasks(what string) (rest string, tasks bool) {
	if what == "tasks" {
		return "", true
	}
	rest, tasks = strings.CutPrefix(what, "tasks/")
	return rest, tasks
}

// Aims reports what [Aimed] knows nothing of: a seed without faults would show nothing.
func Aims(what string) error {
	what, _ = ofTasks(what)
	known, at := []string{"restore"}, []string{}
	for _, k := range slices.Concat(kinds, acts) {
		known = append(known, k.kind)
	}
	for _, m := range moments {
		at = append(at, m.at)
	}
	if name, _, waits := strings.Cut(what, "@"); waits && !slices.ContainsFunc(seizures, func(k kind) bool { return k.kind == name }) {
		return fmt.Errorf("%s does not wait for a moment", name)
	}
	return Known(what, known, at)
}

// Known reports whether an aim, kind or kind@moment, is of some kinds and moments; an empty one is.
func Known(what string, kinds, moments []string) error {
	kind, at, waits := strings.Cut(what, "@")
	switch {
	case what == "":
		return nil
	case !slices.Contains(kinds, kind):
		return fmt.Errorf("nothing of the kind %q goes wrong; there are: %s", kind, strings.Join(kinds, ", "))
	case waits && !slices.Contains(moments, at):
		return fmt.Errorf("there is no moment %q; there are: %s", at, strings.Join(moments, ", "))
	}
	return nil
}
