package platform

import (
	"context"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/platform/export"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/server/tenants"
)

// exportName is that of the directory of an export: each deprovision has another, also after a restore of the session.
func exportName(t *machines.Task, b *machine.Task) string {
	return t.Key() + b.RetiringAt.UTC().Format("-20060102T150405Z")
}

// exports saves what a tenant has in a directory of its own, which is named by the session and by when the tenant began to be closed.
func exports(files *export.Files, databases *tenants.Databases) func(context.Context, *machines.Task, *machine.Task) error {
	return func(ctx context.Context, t *machines.Task, b *machine.Task) error {
		of := export.Tenant{Name: exportName(t, b), Tenant: b.Request.EnterpriseID, Session: t.Key()}
		if b.Storage != nil {
			of.Bucket = storage.Bucket{ID: b.Storage.ID, Name: b.Storage.Bucket, Prefix: b.Storage.Prefix}
		}
		if b.Database != nil {
			var err error
			if of.Database, err = databases.Address(b.Database, "instar export"); err != nil {
				return err
			}
		}
		return files.Save(ctx, of)
	}
}
