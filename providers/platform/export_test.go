//go:build linux

package platform_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
)

// A tenant that is to be exported, and cannot be, is served still: that is found before anything is taken away.
func TestNothingIsTakenAwayForAnExportThatCannotBeMade(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	readOnly := providers.Errorf(providers.Unavailable, "cannot export to /srv/exports: read-only file system")
	exports := 0
	w.Export = func(context.Context, *machines.Task, *machine.Task) error {
		exports++
		return nil
	}
	w.Exportable = func(*machines.Task, *machine.Task) error { return readOnly }
	plan := twice[machine.Plan](w, "plan", 1, b)
	require.False(t, plan.Export)
	require.Equal(t, []string{"the tenant cannot be closed with export until it is planned anew, as by an upgrade: " + readOnly.Error()}, plan.Notes)

	instance := twice[machine.Instance](w, "provision", 2, b)
	db := twice[database.Allocated](w, "allocate", 3, b)
	bucket := twice[machine.Storage](w, "store", 4, b)
	b.Instance, b.Database, b.Storage = &instance, &db, &bucket
	app := twice[machine.App](w, "deploy", 5, b)
	b.App = &app
	twice[machine.Route](w, "route", 6, b)
	asked := len(w.workers.asked)
	b.Actions = []session.Action{
		{Name: "retire_tenant_runtime", Kind: database.KindRuntime, Stop: true},
		{Name: "remove_route", Kind: machine.KindRoute, Stop: true},
		{Name: "delete_app:tenant-acme-r1", Kind: machine.KindApp, Stop: true},
		{Name: "export_data", Kind: database.KindDatabase, Stop: true},
		{Name: "delete_database", Kind: database.KindDatabase},
	}
	kept := func(why string) {
		t.Helper()
		for _, r := range w.perform("own", "undo", 7, b).Data.(session.Results).Actions {
			require.False(t, r.Done, "%+v", r)
			if r.Action == "export_data" {
				require.Contains(t, r.Error, why)
			} else {
				require.Contains(t, r.Error, "not tried", "%+v", r)
			}
		}
		require.Len(t, w.workers.asked, asked)
		require.Equal(t, "1.0 acme tenant_acme tenant-acme acme.example.test", w.says())
	}
	f := w.try("own", "undo", 7, 1, b).Failure
	require.True(t, f.Retryable)
	require.Contains(t, f.Message, "read-only file system")
	kept("read-only file system")
	export := w.Export
	w.Export = nil // as after another configuration
	kept("nowhere to export to")

	w.Export, w.Exportable = export, func(*machines.Task, *machine.Task) error { return nil }
	require.True(t, twice[machine.Plan](w, "plan", 8, b).Export)
	for _, r := range w.perform("own", "undo", 9, b).Data.(session.Results).Actions {
		require.True(t, r.Done, "%+v", r)
	}
	require.Equal(t, 1, exports)
}
