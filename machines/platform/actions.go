package platform

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// kind is this machine for the edges that all sessions share.
var kind = session.New(session.Kind[Data]{
	Prefix: prefix, Stages: slices.Concat(Stages, upgradeStages), Resources: resources, Actions: actions, About: about, Take: take, Failing: failing,
	Over:      func(d *Data) { database.PutAside(&d.Trail, &d.Database) },
	DryRun:    func(s *step) bool { return s.Data.Request.DryRun },
	Approval:  func(s *step) bool { return s.Data.Request.Approval || machines.Body[Plan](s).Approval },
	RollsBack: func(d *Data) bool { return d.Request.OnFailure == "rollback" },
	Patience:  patience,
})

// patience is what the request says, and longer while a share is watched: nothing is told of one meanwhile.
func patience(d *Data) time.Duration {
	p := cmp.Or(time.Duration(d.Request.IdleSeconds)*time.Second, 30*time.Minute)
	if d.Step == stepShift && d.Upgrade != nil {
		p = max(p, time.Duration(d.Upgrade.Hold)*time.Second+time.Minute)
	}
	return p
}

// mostSlugs is how many generated slugs may be taken before the session fails.
const mostSlugs = 8

var (
	itsOwn = &guard{Name: "of this tenant", Doc: "enterpriseId in the body is another tenant than that of the path", Holds: func(s *step) bool {
		_, refused := machines.Body[RequestBody](s).For(s.Entity().Parent)
		return refused == nil
	}}
	settled = &guard{Name: "settled", Doc: "something is under way", Holds: func(s *step) bool { return s.Data.Phase == "" }}
	// closable: an export that is not possible is found before anything is closed, as there is no way back from there.
	closable = &guard{Name: "named", Doc: "tenant in the body is another one, or export is asked for and the plan says that there is nowhere to export to (plan.notes says why; an upgrade plans anew)", Holds: func(s *step) bool {
		b := machines.Body[RetireBody](s)
		return b.Tenant == s.Data.Request.EnterpriseID && (!b.Export || s.Data.Plan != nil && s.Data.Plan.Export)
	}}
	sameCertificate = &guard{Name: "same certificate", Holds: func(s *step) bool {
		c, b := s.Data.Certificate, machines.Body[Certificate](s)
		return c != nil && c.Serial == b.Serial && c.NotAfter.Equal(b.NotAfter) && s.Data.Problem == ""
	}}
	sameTrouble = &guard{Name: "nothing new", Holds: func(s *step) bool { return machines.Body[Trouble](s).Message == s.Data.Problem }}
	anotherSlug = &guard{Name: "another slug", Holds: func(s *step) bool {
		d := s.Data
		return d.Phase == session.Executing && d.Request.Slug == "" && d.SlugTries < mostSlugs && machines.Body[machines.Failure](s).Code == CodeSlug
	}}
)

// about is what every event says: the session, the tenant, and what it has.
func about(s *step) map[string]any {
	d := s.Data
	data := map[string]any{"sessionId": s.Entity().Key(), "enterpriseId": d.Request.EnterpriseID}
	if d.Instance != nil {
		data["instanceId"] = d.Instance.ID
	}
	if d.Database != nil {
		data["databaseId"] = d.Database.DatabaseID
	}
	return data
}

func request(s *step) {
	s.NextGeneration()
	r, _ := machines.Body[RequestBody](s).For(s.Entity().Parent)
	*s.Data = Data{Request: r, Slug: cmp.Or(r.Slug, slug(r.EnterpriseID)), Release: 1, Releases: 1}
	s.Fail(nil)
	kind.Tell(s, EventRequested, map[string]any{"request": r, "slug": s.Data.Slug})
	kind.Begin(s, &Stages[0], 1)
}

// failing: a slug that is taken is another tenant's, and so is the instance of its name. They leave the ledger, or an undo would take them from it. Where the fence was lost, retry compares again.
func failing(d *Data, f machines.Failure) {
	if f.Code == CodeSlug {
		d.disown()
	}
	database.Unfenced(&d.Trail, f, Verifying, stepCompare)
}

func (d *Data) disown() {
	d.Ledger = slices.DeleteFunc(slices.Clone(d.Ledger), func(e session.Entry) bool { return e.Kind == KindSlug || e.Kind == KindInstance })
}

// nextSlug tries another one. Nothing was created under the one that is taken.
func nextSlug(s *step) {
	d := s.Data
	s.Fail(nil)
	kind.Tell(s, EventSlugTaken, map[string]any{"slug": d.Slug})
	d.disown()
	d.SlugTries++
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d/%d", s.Entity().Key(), s.Entity().Generation, d.SlugTries) // never fails
	d.Slug = fmt.Sprintf("%s-%04x", slug(d.Request.EnterpriseID), h.Sum32()&0xffff)
	d.PrimaryDomain = d.Slug + "." + d.Plan.Domain
	kind.Begin(s, kind.Stage(AllocatingInstance, ""), d.Attempt)
}

func progressed(s *step) {
	s.Data.Progress, s.Data.LastProgressAt = machines.Body[database.Progress](s), s.Now()
	kind.Tell(s, EventDataProgress, map[string]any{"table": s.Data.Progress.Table, "progress": s.Data.Progress})
}

func rolling(s *step) {
	s.Data.LastProgressAt = s.Now()
	b := machines.Body[Rollout](s)
	more := map[string]any{"status": b.Status, "ready": b.Ready, "replicas": b.Replicas}
	kind.Tell(s, EventDeploymentProgress, more)
	kind.Tell(s, EventRollout, more)
}

func renewed(s *step) {
	c := *machines.Body[Certificate](s)
	s.Data.Certificate, s.Data.Problem = &c, ""
	kind.Tell(s, EventCertRenewed, map[string]any{"certificate": &c, "domain": s.Data.PrimaryDomain, "resource": session.Change{Type: KindCert, ID: s.Data.PrimaryDomain, Action: "updated"}})
}

func unrenewed(s *step) {
	s.Data.Problem = machines.Body[Trouble](s).Message
	kind.Tell(s, EventCertUnrenewed, map[string]any{"problem": s.Data.Problem, "domain": s.Data.PrimaryDomain, "certificate": s.Data.Certificate})
}

// take takes the result of a stage.
func take(k *session.Kind[Data], s *step, g *session.Stage, more map[string]any) {
	d := s.Data
	upgrading := g.State == Upgrading
	if upgrading {
		d.Upgrade = d.Upgrade.advance(s.Body)
		more["upgrade"] = d.Upgrade
	}
	switch b := s.Body.(type) {
	case *Plan:
		more["plan"] = b
		if upgrading {
			d.replan(b)
		} else {
			d.Plan, d.Version, d.PrimaryDomain = b, cmp.Or(d.Request.Version, b.Version), d.Slug+"."+b.Domain
		}
	case *Instance:
		d.Instance = b
		k.Mark(s, session.Created, KindSlug, KindInstance)
		more["instanceId"], more["slug"] = b.ID, d.Slug
	case *database.Allocated:
		d.Database = b
		k.Mark(s, session.Created, database.KindDatabase)
		more["databaseId"] = b.DatabaseID
	case *Storage:
		d.Storage = b
		k.Mark(s, session.Created, KindStorage)
		more["storageId"], more["bucket"] = b.ID, b.Bucket
	case *App:
		if !upgrading {
			d.App = b
		}
		k.MarkIf(s, session.Created, func(e *session.Entry) bool { return e.Kind == KindApp && e.State == session.Intended })
		more["app"] = b
	case *database.Migrated:
		for _, name := range b.Applied {
			k.Emit(s, EventMigrationApplied, map[string]any{"migration": name, "resource": session.Change{Type: database.KindDatabase, ID: d.databaseName(), Action: "updated"}})
		}
		d.Migrations, more["count"] = len(b.Applied), len(b.Applied)
	case *database.Progress:
		d.Progress, more["totalRows"], more["migratedRows"] = b, b.Total, b.Rows
		k.Mark(s, session.Created, database.KindReplication)
		if d.Request.Mode != database.ModeOnline {
			k.Mark(s, session.Created, database.KindFence)
		}
	case *Route:
		d.Route = b
		k.Mark(s, session.Created, KindRoute, KindDomain)
		more["domain"], more["route"] = d.PrimaryDomain, b
	case *Certificate:
		d.Certificate = b
		k.Mark(s, session.Created, KindCert)
		more["certificate"] = b
	case *database.Verified:
		d.Verified, more["result"] = b, b
		k.Mark(s, session.Created, database.KindFence)
	case *Proven:
		more["result"] = b
	case *database.Switched:
		d.Epoch, more["epoch"] = b.Epoch, b.Epoch
		k.Mark(s, session.Created, database.KindRuntime)
	case *Shifted:
		more["result"] = b
	}
	if g.Step == stepPromote {
		promote(d)
		alone(k, s)
		d.Upgrade = nil
	}
}

func retire(s *step) {
	s.Data.Export, s.Data.RetiringAt = machines.Body[RetireBody](s).Export, s.Now()
	kind.Leave(s, EventRetiring, nil)
}

func retired(s *step) {
	s.Fail(nil)
	s.Data.Certificate, s.Data.Problem = nil, ""
	s.Data.Undone = machines.Body[session.Results](s).Actions
	kind.MarkIf(s, session.Undone, func(e *session.Entry) bool { return e.Kind != database.KindFence })
	kind.Tell(s, EventRetired, map[string]any{"actions": s.Data.Undone})
	kind.Transitioned(s)
	kind.Rest(s)
	kind.Over(s.Data)
}
