package platform

import (
	"slices"
	"time"

	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// Task is the data of every effect. What is of [database.Task] has its place and its names, so that a worker of machines/database reads the task as its own.
type Task struct {
	database.Task
	Step          string       `json:"step,omitempty"`
	Platform      RequestBody  `json:"platform"`
	Slug          string       `json:"slug,omitempty"`
	Name          string       `json:"name,omitempty"` // of the instance and the bucket
	PrimaryDomain string       `json:"primaryDomain,omitempty"`
	Release       *App         `json:"release,omitempty"` // that a deployment makes, or is the one that is served. In an upgrade that of the upgrade, without a version until its plan has one
	Instance      *Instance    `json:"instance,omitempty"`
	Storage       *Storage     `json:"storage,omitempty"`
	App           *App         `json:"app,omitempty"` // that is served
	Route         *Route       `json:"route,omitempty"`
	Certificate   *Certificate `json:"certificate,omitempty"`
	Upgrade       *Upgrade     `json:"upgrade,omitempty"`
	RetiringAt    time.Time    `json:"retiringAt,omitzero"`  // when the tenant began to be closed: it names an export
	Generation    uint64       `json:"generation,omitempty"` // of the session, which is one for each life; only with a custom domain
	Kept          bool         `json:"kept,omitempty"`       // the undo leaves the custom domain to the tenant
}

func task(s *step) any {
	d := s.Data
	t := Task{
		Task: database.Task{Session: s.Entity().Key(), Attempt: d.Attempt, Request: d.Request.database(), Database: d.Database, Ledger: d.Ledger, Epoch: d.Epoch},
		Step: d.Step, Platform: d.Request, Slug: d.Slug, Name: d.Name(), PrimaryDomain: d.PrimaryDomain,
		Instance: d.Instance, Storage: d.Storage, App: d.App, Route: d.Route, Certificate: d.Certificate, Upgrade: d.Upgrade, RetiringAt: d.RetiringAt,
	}
	if d.Request.CustomDomain != "" {
		t.Generation = s.Entity().Generation
	}
	if d.Verified != nil {
		t.Fenced = d.Verified.Fenced
	}
	if d.Plan != nil {
		t.Server = d.Plan.Server
	}
	if d.Version != "" {
		t.Release = &App{Name: d.appName(d.Release), Version: d.Version}
	}
	if u := d.Upgrade; u != nil { // from its first step: what is withdrawn is never the release that serves
		t.Release = &App{Name: d.appName(u.Release), Version: u.To}
	}
	if d.Phase == session.RollingBack && s.Entity().State != Withdrawing {
		t.Kept = !d.LettingIn && slices.Contains(d.Skip, undoing[KindDomain])
		t.Actions, t.Writes = kind.Planned(d, s.Entity().State), d.Writes
	}
	return t
}
