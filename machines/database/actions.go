package database

import (
	"cmp"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

// kind is this machine for the edges that all sessions share.
var kind = session.New(session.Kind[Data]{
	Prefix: "provisioning.db", Stages: Stages, Resources: resources, Actions: actions, About: about, Take: take,
	Over:      func(d *Data) { PutAside(&d.Trail, &d.Database) },
	DryRun:    func(s *step) bool { return s.Data.Request.DryRun },
	Approval:  func(s *step) bool { return s.Data.Request.Approval },
	Failing:   func(d *Data, f machines.Failure) { Unfenced(&d.Trail, f, Verifying, "") },
	RollsBack: func(d *Data) bool { return d.Request.OnFailure == "rollback" },
	Patience: func(d *Data) time.Duration {
		return cmp.Or(time.Duration(d.Request.IdleSeconds)*time.Second, 30*time.Minute)
	},
})

func task(s *step) any {
	d := s.Data
	t := Task{Session: s.Entity().Key(), Attempt: d.Attempt, Request: d.Request, Database: d.Database, Ledger: d.Ledger, Epoch: d.Epoch}
	if d.Plan != nil {
		t.Server = d.Plan.Server
	}
	if d.Verified != nil {
		t.Fenced = d.Verified.Fenced
	}
	if d.Phase == RollingBack {
		t.Actions, t.Writes = kind.Planned(d, s.Entity().State), d.Writes
	}
	return t
}

// about is what every event says: the session and the tenant.
func about(s *step) map[string]any {
	data := map[string]any{"sessionId": s.Entity().Key(), "enterpriseId": s.Data.Request.EnterpriseID}
	if s.Data.Database != nil {
		data["databaseId"] = s.Data.Database.DatabaseID
	}
	return data
}

func request(s *step) {
	s.NextGeneration()
	r, _ := machines.Body[RequestBody](s).For(s.Entity().Parent)
	*s.Data = Data{Request: r}
	s.Fail(nil)
	kind.Tell(s, EventRequested, map[string]any{"request": s.Data.Request})
	kind.Begin(s, &Stages[0], 1)
}

func progressed(s *step) {
	s.Data.Progress, s.Data.LastProgressAt = machines.Body[Progress](s), s.Now()
	kind.Tell(s, EventDataProgress, map[string]any{"table": s.Data.Progress.Table, "progress": s.Data.Progress})
}

// take takes the result of a stage.
func take(k *session.Kind[Data], s *step, _ *Stage, more map[string]any) {
	d := s.Data
	switch b := s.Body.(type) {
	case *Plan:
		d.Plan, more["plan"] = b, b
	case *Allocated:
		d.Database = b
		k.Mark(s, session.Created, KindDatabase)
	case *Migrated:
		for _, name := range b.Applied {
			k.Emit(s, EventMigrationApplied, map[string]any{"migration": name, "resource": d.updated()})
		}
		d.Migrations, more["count"] = len(b.Applied), len(b.Applied)
	case *Progress:
		d.Progress, more["totalRows"], more["migratedRows"] = b, b.Total, b.Rows
		k.Mark(s, session.Created, KindReplication)
		if d.Request.Mode != ModeOnline {
			k.Mark(s, session.Created, KindFence)
		}
	case *Verified:
		d.Verified, more["result"] = b, b
		k.Mark(s, session.Created, KindFence)
	case *Switched:
		d.Epoch, more["epoch"] = b.Epoch, b.Epoch
		k.Mark(s, session.Created, KindRuntime)
	}
}

func revert(s *step) {
	s.Data.Writes = RefuseWrites
	switch b := machines.Body[RevertBody](s); {
	case b.KeepWrites:
		s.Data.Writes = KeepWrites
	case b.DiscardWrites:
		s.Data.Writes = DiscardWrites
	}
	kind.Leave(s, EventReverting, map[string]any{"writes": s.Data.Writes})
}

// turnBack: the tenant stays where it is, because of what it has written there.
func turnBack(s *step) {
	why := machines.Failure{Code: "REVERT_REFUSED", Message: machines.Body[Undone](s).Actions[0].Error, At: s.Now()}
	s.Fail(&why)
	s.Data.Writes = ""
	kind.Tell(s, EventRevertRefused, map[string]any{"error": why})
	kind.Transitioned(s)
	kind.Rest(s)
}

func retire(s *step) {
	s.Data.Writes = ""
	kind.Leave(s, EventRetiring, map[string]any{"writes": ""})
}

func retired(s *step) {
	s.Fail(nil)
	s.Data.Undone = machines.Body[Undone](s).Actions
	kind.Mark(s, session.Undone, KindDatabase, KindReplication, KindRuntime)
	kind.Tell(s, EventRetired, map[string]any{"actions": s.Data.Undone})
	kind.Transitioned(s)
	kind.Rest(s)
	kind.Over(s.Data)
}

// PutAside forgets a database that an undo has put aside: it is the tenant's no more.
func PutAside(t *session.Trail, of **Allocated) {
	if slices.ContainsFunc(t.Undone, func(r ActionResult) bool { return r.Action == "delete_database" && r.Done && !r.Skipped }) {
		*of = nil
	}
}

func rotate(s *step) {
	s.Data.Phase = Rotating
	s.Fail(nil)
	kind.Tell(s, EventRotating, nil)
}

func rotated(s *step) {
	b := machines.Body[Rotated](s)
	s.Fail(nil) // of an earlier try
	database := *s.Data.Database
	database.Credentials = b.Credentials
	s.Data.Database, s.Data.Epoch, s.Data.Phase, s.Data.RotatedAt = &database, b.Epoch, "", s.Now()
	kind.Tell(s, EventRotated, map[string]any{"epoch": b.Epoch, "resource": s.Data.updated()})
}

func notRotated(s *step) {
	s.Data.Phase = ""
	kind.Tell(s, EventNotRotated, map[string]any{"error": machines.Body[machines.Failure](s)})
}

// reverted is the end of a revert: elsewhere the reason of a failure stays.
func reverted(s *step) {
	s.Fail(nil)
	kind.EndUndo(s)
}
