package repository

import (
	"cmp"
	"reflect"
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	Pending   = "pending"
	Cloning   = "cloning"
	Ready     = "ready"
	Analyzing = "analyzing"
	Completed = "completed"
	Error     = "error"
	Deleting  = "deleting"
	Deleted   = "deleted"
)

// Inputs.
const (
	CommandCreate    = "create"
	CommandConfigure = "configure"
	CommandClone     = "clone"
	CommandPause     = "pause"
	CommandResume    = "resume"
	CommandDelete    = "delete"

	ReportObserved = "observed"

	TimeoutDelete = "delete-deadline"
)

// Events.
const (
	EventCreated         = "repository.created"
	EventConfigured      = "repository.configured"
	EventCloneRequested  = "repository.clone.requested"
	EventPaused          = "repository.paused"
	EventResumed         = "repository.resumed"
	EventCounted         = "repository.tasks.counted"
	EventState           = "repository.status.changed"
	EventDeletion        = "repository.deletion.requested"
	EventDeletionStalled = "repository.deletion.stalled"
	EventDeleted         = "repository.deleted"
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

// Machine is the lifecycle of a repository.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "repository", Plural: "repositories", Doc: "What tasks work on; its state is derived from them.",
	States: states, Inputs: inputs, Events: events, Columns: columns, Edges: table,
})

// Derived are the states that [Data.Derive] leads to.
var Derived = []string{Pending, Cloning, Ready, Analyzing, Completed, Error}

var (
	unborn   = []string{machines.None, Deleted}
	live     = append([]string{Deleting}, Derived...)
	uncloned = []string{Pending, Cloning}
	beyond   = []string{Ready, Analyzing, Completed, Error} // where a command that asks for a clone begins it anew
)

func only(state string) []string     { return []string{state} }
func emit(events ...string) []string { return events }

var table = append([]machines.Edge[Data]{
	{From: unborn, On: CommandCreate, If: hasURL, To: Pending, Do: create, Emit: emit(EventCreated)},
	{From: unborn, On: CommandCreate, To: Ready, Do: create, Emit: emit(EventCreated)},
	{From: Derived, On: CommandConfigure, If: nothingNew, To: machines.Same, Noop: true},
	{From: beyond, On: CommandConfigure, If: elsewhere, To: Pending, Do: configure, Emit: emit(EventConfigured, EventState)},
	{From: Derived, On: CommandConfigure, To: machines.Same, Do: configure, Emit: emit(EventConfigured)},
	{From: beyond, On: CommandClone, If: cloneable, To: Pending, Do: clone, Emit: emit(EventCloneRequested, EventState)},
	{From: uncloned, On: CommandClone, If: cloneable, To: machines.Same, Do: clone, Emit: emit(EventCloneRequested)},
	{From: Derived, On: CommandPause, If: paused, To: machines.Same, Noop: true},
	{From: Derived, On: CommandPause, To: machines.Same, Do: pause, Emit: emit(EventPaused)},
	{From: Derived, On: CommandResume, If: paused, To: machines.Same, Do: resume, Emit: emit(EventResumed)},
	{From: Derived, On: CommandResume, To: machines.Same, Noop: true},
	{From: Derived, On: CommandDelete, To: Deleting, Do: func(s *step) { s.Fail(nil) }, Emit: emit(EventDeletion)},
	{From: only(Deleting), On: CommandDelete, To: machines.Same, Noop: true},
	{From: only(Deleting), On: TimeoutDelete, To: machines.Same, Do: stalled, Emit: emit(EventDeletionStalled)},

	{From: live, On: ReportObserved, If: known, To: machines.Same, Noop: true},
	{From: only(Deleting), On: ReportObserved, If: noneLeft, To: Deleted, Do: count, Emit: emit(EventCounted, EventDeleted)},
	{From: only(Deleting), On: ReportObserved, To: machines.Same, Do: count, Emit: emit(EventCounted)},
	{From: Derived, On: ReportObserved, If: stays, To: machines.Same, Do: count, Emit: emit(EventCounted)},
}, derived()...)

// derived are the rules as edges: one for each state that the counts may lead to.
func derived() []machines.Edge[Data] {
	var edges []machines.Edge[Data]
	for _, to := range Derived {
		var from []string
		for _, s := range Derived {
			if s != to {
				from = append(from, s)
			}
		}
		leads := &guard{Name: "its tasks make it " + to, Holds: func(s *step) bool { return comesTo(s) == to }}
		edges = append(edges, machines.Edge[Data]{From: from, On: ReportObserved, If: leads, To: to, Do: count, Emit: emit(EventState)})
	}
	return edges
}

var states = []machines.State[Data]{
	{Name: Pending, Doc: "It is to be cloned.", Transitional: true},
	{Name: Cloning, Doc: "Its clone is queued or running.", Transitional: true},
	{Name: Ready, Doc: "It is cloned, and its required tasks have not all been run."},
	{Name: Analyzing, Doc: "A task of it is queued or running.", Transitional: true},
	{Name: Completed, Doc: "All required tasks have succeeded."},
	{Name: Error, Doc: "Its clone or a required task has failed.", Failed: true},
	{Name: Deleting, Doc: "Its tasks are being deleted.", Timeout: &machines.Timeout[Data]{Input: TimeoutDelete, After: func(*Data) time.Duration { return 30 * time.Minute }}},
	{Name: Deleted, Doc: "It is gone; create begins a new life of the name.", Terminal: true},
}

var inputs = []machines.Command{
	{Name: CommandCreate, Doc: "Create a repository, its tasks, and clone it if it has a URL.", Body: CreateBody{}, Birth: true, Replaces: true},
	{Name: CommandConfigure, Doc: "Replace what it was created with; another URL or ref is cloned.", Body: ConfigureBody{}, Replaces: true},
	{Name: CommandClone, Doc: "Clone it again."},
	{Name: CommandPause, Doc: "Start nothing of it; what runs goes on.", Body: PauseBody{}},
	{Name: CommandResume, Doc: "Start tasks of it again."},
	{Name: CommandDelete, Doc: "Cancel and delete its tasks with their documents, then delete it.", Destructive: true},
	{Name: ReportObserved, Doc: "Its tasks, counted.", Body: Observed{}, Report: true},
	{Name: TimeoutDelete, Doc: "Its tasks were not deleted in time.", Report: true},
}

var events = []machines.EventType{
	{Name: EventCreated, Class: machines.ClassResource, Doc: "A repository was created."},
	{Name: EventConfigured, Class: machines.ClassResource, Doc: "It was configured."},
	{Name: EventCloneRequested, Class: machines.ClassResource, Doc: "It is to be cloned again."},
	{Name: EventPaused, Class: machines.ClassResource, Doc: "Nothing of it is started, by whom, and why."},
	{Name: EventResumed, Class: machines.ClassResource, Doc: "Its tasks are started again."},
	{Name: EventCounted, Class: machines.ClassProgress, Doc: "Its tasks, counted, where its state stays."},
	{Name: EventState, Class: machines.ClassState, Doc: "Its state is another one, and from which counts."},
	{Name: EventDeletion, Class: machines.ClassProgress, Doc: "Deletion was requested."},
	{Name: EventDeletionStalled, Class: machines.ClassError, Doc: "Its tasks are not deleted yet."},
	{Name: EventDeleted, Class: machines.ClassState, Doc: "It is deleted."},
}

var columns = []machines.Column{
	{Title: "URL", Path: "data.url"},
	{Title: "QUEUED", Path: "data.tasks.queued"},
	{Title: "RUNNING", Path: "data.tasks.running"},
	{Title: "SUCCEEDED", Path: "data.tasks.succeeded"},
	{Title: "FAILED", Path: "data.tasks.failed"},
	{Title: "WARNINGS", Path: "data.warnings"},
	{Title: "PAUSED", Path: "data.paused"},
}

var hasURL = &guard{Name: "to be cloned", Holds: func(s *step) bool { return machines.Body[CreateBody](s).URL != "" }}

var cloneable = &guard{Name: "has a url", Doc: "it has no url to clone; configure it with one", Holds: func(s *step) bool { return s.Data.URL != "" }}

var nothingNew = &guard{Name: "nothing new", Holds: func(s *step) bool {
	return reflect.DeepEqual(machines.Body[ConfigureBody](s).Spec, s.Data.Spec)
}}

var elsewhere = &guard{Name: "another url or ref", Holds: func(s *step) bool { return isElsewhere(s) }}

func isElsewhere(s *step) bool {
	b := machines.Body[ConfigureBody](s)
	return b.URL != "" && (b.URL != s.Data.URL || b.Ref != s.Data.Ref)
}

var paused = &guard{Name: "paused", Holds: func(s *step) bool { return s.Data.Paused != nil }}

var noneLeft = &guard{Name: "no task is left", Holds: func(s *step) bool { return machines.Body[Observed](s).Tasks() == 0 }}

// known: it says what is stored.
var known = &guard{Name: "nothing new", Holds: func(s *step) bool {
	b := machines.Body[Observed](s)
	stored := s.Data.Tasks
	if stored == nil {
		stored = &Counts{}
	}
	if s.State() == Deleting && b.Tasks() == 0 {
		return false
	}
	next := s.Data.After(b, s.Entity().Generation)
	return *stored == b.Counts && next.Applied == s.Data.Applied && next.Clone == s.Data.Clone && (s.State() == Deleting || comesTo(s) == s.State())
}}

var stays = &guard{Name: "its state stays", Holds: func(s *step) bool { return comesTo(s) == s.State() }}

// comesTo is the state that observed leads to.
func comesTo(s *step) string {
	b := machines.Body[Observed](s)
	return s.Data.After(b, s.Entity().Generation).Derive(&b.Counts)
}

func create(s *step) {
	b := machines.Body[CreateBody](s)
	s.NextGeneration()
	s.Label(b.Labels)
	s.Data.Spec, s.Data.Clone = b.Spec, b.URL != ""
	s.Detail(EventCreated, b.Spec)
}

func configure(s *step) {
	b := machines.Body[ConfigureBody](s)
	s.NextGeneration()
	if isElsewhere(s) {
		toBeCloned(s)
	}
	s.Data.Spec = b.Spec
	s.Detail(EventConfigured, b.Spec)
}

func clone(s *step) {
	s.NextGeneration()
	toBeCloned(s)
}

// toBeCloned begins what the table leads to pending for: an error of before says nothing of it.
func toBeCloned(s *step) {
	s.Data.Clone = true
	s.Fail(nil)
	s.Detail(EventState, s.Data.Tasks)
}

func pause(s *step) {
	s.Data.Paused = &Pause{Reason: cmp.Or(machines.Body[PauseBody](s).Reason, s.In.Reason), By: s.In.Actor}
	s.Detail(EventPaused, s.Data.Paused)
}

func resume(s *step) {
	s.Detail(EventResumed, s.Data.Paused)
	s.Data.Paused = nil
}

func count(s *step) {
	b := machines.Body[Observed](s)
	counts := b.Counts
	s.Data.Tasks = &counts
	s.Data.Warnings = warnings(&s.Data.Spec, &counts)
	*s.Data = *s.Data.After(b, s.Entity().Generation)
	switch to := s.Data.Derive(&counts); {
	case s.State() == Deleting:
	case to == Error && counts.Clone == "failed":
		s.Fail(&machines.Failure{Code: "clone-failed", Message: cmp.Or(s.In.Reason, "the task "+CloneTask+" has failed")})
	case to == Error:
		s.Fail(&machines.Failure{Code: "task-failed", Message: cmp.Or(s.In.Reason, "a required task has failed")})
	default:
		s.Fail(nil)
	}
	s.Detail(EventCounted, &counts)
	s.Detail(EventState, &counts)
}

func stalled(s *step) {
	f := &machines.Failure{Code: "delete-deadline", Message: "its tasks are not deleted yet", At: s.Now()}
	s.Fail(f)
	s.Detail(EventDeletionStalled, f)
}
