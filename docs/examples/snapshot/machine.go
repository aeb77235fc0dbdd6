package snapshot

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	Taking   = "TAKING"
	Kept     = "KEPT"
	Failed   = "FAILED"
	Removing = "REMOVING"
	Removed  = "REMOVED"
)

// Data is what a snapshot keeps.
type Data struct {
	Directory string `json:"directory,omitempty"`
	Protected bool   `json:"protected,omitempty"`
	File      string `json:"file,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"`
}

// TakeBody is the body of take.
type TakeBody struct {
	Directory string `json:"directory" minLength:"1" maxLength:"1024" doc:"What to keep"`
}

// ProtectBody is the body of protect.
type ProtectBody struct {
	Protected bool `json:"protected" doc:"Refuse remove"`
}

// Taken is what the provider reports.
type Taken struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// Task is what the provider gets.
type Task struct {
	Directory string `json:"directory"`
}

type step = machines.Tx[Data]

var table = []machines.Edge[Data]{
	{From: []string{machines.None, Removed}, On: "take", To: Taking, Do: take, Emit: []string{"snapshot.requested"}, Effects: []string{"copy"}},
	{From: []string{Failed}, On: "retry", To: Taking, Emit: []string{"snapshot.requested"}, Effects: []string{"copy"}},
	{From: []string{Taking}, On: "copied", To: Kept, Do: copied, Emit: []string{"snapshot.kept"}},
	{From: []string{Taking}, On: "copy-failed", To: Failed, Do: failed, Emit: []string{"snapshot.failed"}},
	{From: []string{Taking}, On: "too-late", To: Failed, Do: late, Emit: []string{"snapshot.failed"}},
	{From: []string{Kept}, On: "protect", To: machines.Same, Do: protect, Emit: []string{"snapshot.protected"}},
	{From: []string{Kept, Failed}, On: "remove", If: unprotected, To: Removing, Emit: []string{"snapshot.removal.requested"}, Effects: []string{"erase"}},
	{From: []string{Removing}, On: "erased", To: Removed, Emit: []string{"snapshot.removed"}},
	{From: []string{Removing}, On: "erase-failed", To: Failed, Do: failed, Emit: []string{"snapshot.failed"}},
	{From: []string{Removing}, On: "too-late", To: Failed, Do: late, Emit: []string{"snapshot.failed"}},
}

// Machine is the lifecycle of a snapshot.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "snapshot", Plural: "snapshots", Doc: "A copy of a directory as it was.",
	States: []machines.State[Data]{
		{Name: Taking, Doc: "The copy is being made.", Timeout: within(10 * time.Minute)},
		{Name: Kept, Doc: "The copy is there."},
		{Name: Failed, Doc: "There is no copy, or it could not be removed.", Failed: true},
		{Name: Removing, Doc: "The copy is being erased.", Timeout: within(time.Minute)},
		{Name: Removed, Doc: "The copy is gone; take begins a new life of the name.", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "take", Doc: "Copy a directory.", Body: TakeBody{}, Birth: true},
		{Name: "retry", Doc: "Try again."},
		{Name: "protect", Doc: "Refuse to remove it, or allow it again.", Body: ProtectBody{}},
		{Name: "remove", Doc: "Erase the copy.", Destructive: true},
		{Name: "copied", Doc: "The provider has copied it.", Body: Taken{}, Report: true},
		{Name: "copy-failed", Doc: "The provider could not copy it.", Body: machines.Failure{}, Report: true},
		{Name: "erased", Doc: "The provider has erased it.", Report: true},
		{Name: "erase-failed", Doc: "The provider could not erase it.", Body: machines.Failure{}, Report: true},
		{Name: "too-late", Doc: "It was not done in time.", Report: true},
	},
	Effects: []machines.Effect[Data]{
		{Name: "copy", Doc: "Make the copy.", Done: "copied", Failed: "copy-failed", Retry: machines.Retry{Attempts: 3}, Payload: task},
		{Name: "erase", Doc: "Erase the copy.", Done: "erased", Failed: "erase-failed", Payload: task},
	},
	Events: []machines.EventType{
		{Name: "snapshot.requested", Class: machines.ClassProgress, Doc: "A copy was asked for."},
		{Name: "snapshot.kept", Class: machines.ClassState, Doc: "It is KEPT."},
		{Name: "snapshot.failed", Class: machines.ClassState, Doc: "It is FAILED, and why."},
		{Name: "snapshot.protected", Class: machines.ClassResource, Doc: "Its protection was changed."},
		{Name: "snapshot.removal.requested", Class: machines.ClassProgress, Doc: "Its end was asked for."},
		{Name: "snapshot.removed", Class: machines.ClassState, Doc: "It is REMOVED."},
	},
	Columns: []machines.Column{{Title: "DIRECTORY", Path: "data.directory"}, {Title: "BYTES", Path: "data.bytes"}},
	Edges:   table,
})

func within(d time.Duration) *machines.Timeout[Data] {
	return &machines.Timeout[Data]{Input: "too-late", After: func(*Data) time.Duration { return d }}
}

var unprotected = &machines.Guard[Data]{
	Name: "unprotected", Doc: "it is protected; send protect with protected: false first",
	Holds: func(s *step) bool { return !s.Data.Protected },
}

func take(s *step) {
	*s.Data = Data{Directory: machines.Body[TakeBody](s).Directory}
	s.NextGeneration()
	s.Fail(nil)
}

func copied(s *step) {
	b := machines.Body[Taken](s)
	s.Data.File, s.Data.Bytes = b.File, b.Bytes
	s.Fail(nil)
	s.Detail("snapshot.kept", b)
}

func protect(s *step) { s.Data.Protected = machines.Body[ProtectBody](s).Protected }

func failed(s *step) { giveUp(s, *machines.Body[machines.Failure](s)) }

func late(s *step) {
	giveUp(s, machines.Failure{Code: "too-late", Message: "not done in time while " + s.State()})
}

func giveUp(s *step, f machines.Failure) {
	s.Fail(&f)
	s.Detail("snapshot.failed", f)
}

func task(s *step) any { return Task{Directory: s.Data.Directory} }
