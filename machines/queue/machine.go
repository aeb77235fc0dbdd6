package queue

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
)

// States.
const (
	Active  = "active"
	Paused  = "paused"
	Deleted = "deleted"
)

// Commands.
const (
	CommandConfigure = "configure"
	CommandPause     = "pause"
	CommandResume    = "resume"
	CommandDelete    = "delete"
)

// Events.
const (
	EventConfigured = "queue.configured"
	EventPaused     = "queue.paused"
	EventResumed    = "queue.resumed"
	EventDeleted    = "queue.deleted"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

// Machine is the lifecycle of an entry.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "queue", Plural: "queues", Doc: "Limits, rates, caps and pauses of tasks: of all, of a type, of a pool of workers.",
	States: []machines.State[Data]{
		{Name: Active, Doc: "Tasks are started within its limits."},
		{Name: Paused, Doc: "No task of it is started; what runs goes on."},
		{Name: Deleted, Doc: "It limits nothing; configure begins a new life of the name.", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: CommandConfigure, Doc: "Set what it allows; this replaces what was set.", Body: ConfigureBody{}, Birth: true, Replaces: true},
		{Name: CommandPause, Doc: "Start none of its tasks; what runs goes on.", Body: PauseBody{}, Birth: true},
		{Name: CommandResume, Doc: "Start its tasks again."},
		{Name: CommandDelete, Doc: "Allow everything again.", Destructive: true},
	},
	Events: []machines.EventType{
		{Name: EventConfigured, Class: machines.ClassResource, Doc: "What it allows was set."},
		{Name: EventPaused, Class: machines.ClassState, Doc: "It was paused, by whom, and why."},
		{Name: EventResumed, Class: machines.ClassState, Doc: "It was resumed."},
		{Name: EventDeleted, Class: machines.ClassState, Doc: "It limits nothing any more."},
	},
	Columns: []machines.Column{
		{Title: "LIMIT", Path: "data.limit"}, {Title: "RATE", Path: "data.rate"}, {Title: "INTERVAL", Path: "data.interval"}, {Title: "CAP", Path: "data.cap"}, {Title: "PAUSED", Path: "data.paused"},
	},
	Edges: table,
})

var (
	unborn = []string{machines.None, Deleted}
	live   = []string{Active, Paused}
)

var table = []machines.Edge[Data]{
	{From: unborn, On: CommandConfigure, If: settable, To: Active, Do: configure, Emit: []string{EventConfigured}},
	{From: live, On: CommandConfigure, If: nothingNew, To: machines.Same, Noop: true},
	{From: live, On: CommandConfigure, If: settable, To: machines.Same, Do: configure, Emit: []string{EventConfigured}},
	{From: unborn, On: CommandPause, If: named, To: Paused, Do: pause, Emit: []string{EventPaused}},
	{From: []string{Active}, On: CommandPause, To: Paused, Do: pause, Emit: []string{EventPaused}},
	{From: []string{Paused}, On: CommandPause, To: machines.Same, Noop: true},
	{From: []string{Paused}, On: CommandResume, To: Active, Do: resume, Emit: []string{EventResumed}},
	{From: []string{Active}, On: CommandResume, To: machines.Same, Noop: true},
	{From: live, On: CommandDelete, To: Deleted, Do: forget, Emit: []string{EventDeleted}},
}

const names = "its name must be all, type-<type>, pool-<pool>, or, in the namespace default, cluster"

var named = &guard{Name: "named", Doc: names, Holds: func(s *step) bool { return Valid(s.Entity().Namespace, s.Entity().ID) }}

var settable = &guard{
	Name: "named, fitting", Doc: names + "; timeout and attempts are for types, aging is for cluster, whose limit is at most " + strconv.Itoa(task.MaxParallel),
	Holds: func(s *step) bool {
		b, id := machines.Body[ConfigureBody](s), s.Entity().ID
		return Valid(s.Entity().Namespace, id) && (b.Timeout == "" && b.Attempts == 0 || strings.HasPrefix(id, TypePrefix)) && (id == Cluster && b.Limit <= task.MaxParallel || id != Cluster && b.Aging == "")
	},
}

var nothingNew = &guard{Name: "nothing new", Holds: func(s *step) bool { return machines.Body[ConfigureBody](s).Settings == s.Data.Settings }}

func configure(s *step) {
	s.NextGeneration()
	s.Data.Settings = machines.Body[ConfigureBody](s).Settings
	s.Detail(EventConfigured, s.Data.Settings)
}

func pause(s *step) {
	s.Data.Paused = &Pause{Reason: cmp.Or(machines.Body[PauseBody](s).Reason, s.In.Reason), By: s.In.Actor}
	s.Detail(EventPaused, s.Data.Paused)
}

func resume(s *step) { s.Data.Paused = nil }

func forget(s *step) { *s.Data = Data{} }
