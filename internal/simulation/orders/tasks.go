package orders

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
)

// TaskMachines are those of an installation whose tasks are queued and run.
func TaskMachines() []*machines.Machine {
	return []*machines.Machine{Things, task.Machine, repository.Machine, queue.Machine}
}

// TaskKeys are those of their entities: two repositories with n tasks each, or a few more, and what limits them.
func TaskKeys(n int) map[string][]string {
	keys := map[string][]string{}
	for _, repo := range []string{"p", "q"} {
		keys[repository.Machine.Name] = append(keys[repository.Machine.Name], "default."+repo)
		for i := range n + 1 {
			keys[task.Machine.Name] = append(keys[task.Machine.Name], "default."+repo+"."+string(rune('a'+i)))
		}
	}
	for _, name := range []string{queue.All, queue.TypePrefix + "x", queue.TypePrefix + "y", queue.Cluster, queue.PoolPrefix + queue.NodesPool} {
		keys[queue.Machine.Name] = append(keys[queue.Machine.Name], "default."+name)
	}
	return keys
}

// drawTask is what a client wants next where tasks are run: mostly that they are, under limits that change.
func drawTask(r *rand.Rand, keys map[string][]string) Order {
	of := func(m *machines.Machine, name string, body any) Order {
		return Order{Machine: m.Name, Key: keys[m.Name][r.IntN(len(keys[m.Name]))], Name: name, Body: jsonOf(body)}
	}
	switch n := r.IntN(32); {
	case n < 4:
		return of(repository.Machine, "create", repository.CreateBody{Spec: drawSpec(r)})
	case n < 11:
		return drawCreate(r, of(task.Machine, task.CommandCreate, nil))
	case n < 19:
		return of(task.Machine, task.CommandRun, task.RunBody{Again: true})
	case n < 21:
		return of(task.Machine, task.CommandCancel, nil)
	case n < 25:
		return of(queue.Machine, queue.CommandConfigure, queue.ConfigureBody{Settings: queue.Settings{Limit: []int{0, 1, 1, 2, 3}[r.IntN(5)]}})
	case n < 27: // what is paused stays so for a while, and not all of it for long
		o := of(queue.Machine, []string{queue.CommandPause, queue.CommandResume, queue.CommandResume}[r.IntN(3)], nil)
		o.Key = keys[o.Machine][r.IntN(2)]
		return o
	case n == 27:
		return of(repository.Machine, []string{"pause", "resume", "resume", "resume", "delete"}[r.IntN(5)], nil)
	case n == 28:
		return of(repository.Machine, "configure", repository.ConfigureBody{Spec: drawSpec(r)})
	case n < 31:
		return of(task.Machine, []string{task.CommandRetry, task.CommandRetry, task.CommandForceReset, task.CommandReset, task.CommandDelete}[r.IntN(5)], nil)
	}
	return of(task.Machine, task.CommandSnooze, task.SnoozeBody{For: "1s"})
}

func drawSpec(r *rand.Rand) repository.Spec {
	s := repository.Spec{Concurrency: r.IntN(4)}
	if r.IntN(8) == 0 {
		s.URL = "/srv/r"
	}
	if r.IntN(4) == 0 {
		s.Analyses = []string{"x"}
	}
	return s
}

// drawCreate fills in a task that runs at once, or is there to be run. It may run after the ones whose names come before its own, so that none waits for itself.
func drawCreate(r *rand.Rand, o Order) Order {
	b := task.CreateBody{Run: r.IntN(4) > 0, Spec: task.Spec{
		Type: []string{"x", "y"}[r.IntN(2)], Priority: r.IntN(10), Timeout: []string{"", "1s", "1s", "3s"}[r.IntN(4)], Attempts: 1 + r.IntN(4), Backoff: []string{"", "100ms"}[r.IntN(2)],
	}}
	at := strings.LastIndexByte(o.Key, '.') + 1
	if id := o.Key[at:]; id > "a" && r.IntN(6) == 0 {
		b.RunAfter = []string{string(rune(id[0] - 1))}
	}
	if r.IntN(8) == 0 {
		b.UniqueKey = "u"
	}
	o.Body = jsonOf(b)
	return o
}

// DrawBeside is what a client wants next, after so many, where tasks are run: that there are repositories, then mostly something of tasks, and now and then anything that can be asked. Nobody makes up what the orchestrator and
// workers report of tasks.
func DrawBeside(r *rand.Rand, ms []*machines.Machine, keys map[string][]string, after int) Order {
	switch repos := keys[repository.Machine.Name]; {
	case after < len(repos):
		return Order{Machine: repository.Machine.Name, Key: repos[after], Name: "create", Body: jsonOf(repository.CreateBody{Spec: drawSpec(r)})}
	case r.IntN(6) == 0:
		o := Draw(r, ms, keys)
		m := ms[slices.IndexFunc(ms, func(m *machines.Machine) bool { return m.Name == o.Machine })]
		if in, _ := m.Input(o.Name); o.Machine != task.Machine.Name || !in.Report {
			return o
		}
	}
	return drawTask(r, keys)
}
