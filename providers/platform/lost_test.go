//go:build linux

package platform_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	apps "github.com/bcc94042/instar/providers/platform/app"
)

// upgraded is a tenant whose second release serves, and the session as it was before that upgrade. The first release is there no more.
func upgraded(t *testing.T) (w *world, serves machine.App, old machine.Task) {
	t.Helper()
	w, b := setup(t), task("default.acme.own")
	b.Release = &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	serves = twice[machine.App](w, "deploy", 1, b)
	b.App = &serves
	twice[machine.Route](w, "route", 2, b)
	old = task("default.acme.own")
	old.App = &machine.App{Name: "tenant-acme-r1", Version: "1.0", Address: "127.0.0.1:1"}
	return w, serves, old
}

// After a restore, the next upgrade has the name of the release that serves.
func TestAnUpgradeOfASessionOlderThanItsUpgradeLeavesWhatServesAlone(t *testing.T) {
	t.Parallel()
	w, serves, old := upgraded(t)
	old.Upgrade, old.Release = &machine.Upgrade{From: "1.0", To: "1.0", Release: 2}, &machine.App{Name: "tenant-acme-r2", Version: "1.0"}
	old.Ledger = ledger("tenant-acme-r1", "tenant-acme-r2")
	for _, effect := range []string{"plan", "migrate", "deploy", "withdraw"} {
		f := w.perform("own", effect, 3, old).Failure
		require.NotNil(t, f, effect)
		require.Contains(t, f.Message, "the release tenant-acme-r1 is not there, and acme.example.test leads to another one", effect)
		require.False(t, f.Retryable, effect)
		require.Equal(t, "1.1", w.says()[:3], effect)
	}

	// Somebody has resolved it as ready: the next one has a name of its own, and knows what serves.
	old.Upgrade, old.Release = &machine.Upgrade{From: "1.0", To: "1.0", Release: 3, Weight: 5}, &machine.App{Name: "tenant-acme-r3", Version: "1.0"}
	old.Ledger = ledger("tenant-acme-r1", "tenant-acme-r2", "tenant-acme-r3")
	next := twice[machine.App](w, "deploy", 4, old)
	require.NotEqual(t, serves.Address, next.Address)
	old.Upgrade.App = &next
	require.Equal(t, 100, twice[machine.Shifted](w, "shift", 5, old).Weight)
	twice[any](w, "retire", 6, old)
	require.Equal(t, "1.0", w.says()[:3])
	_, err := w.Apps.Look(t.Context(), "default", serves.Name)
	require.True(t, providers.IsNotFound(err), "%v", err)
}

// The first release is there, and so is the second one, which the session does not know of: it is not replaced while traffic goes there.
func TestAReleaseThatServesIsNotReplaced(t *testing.T) {
	t.Parallel()
	w, _, old := upgraded(t)
	first := twice[machine.App](w, "deploy", 3, task("default.acme.own"))
	old.App = &first
	old.Upgrade, old.Release = &machine.Upgrade{From: "1.0", To: "1.0", Release: 2}, &machine.App{Name: "tenant-acme-r2", Version: "1.0"}
	f := w.perform("own", "deploy", 4, old).Failure
	require.NotNil(t, f)
	require.Contains(t, f.Message, "acme.example.test leads to the release tenant-acme-r2")
	require.False(t, f.Retryable)
	require.Equal(t, "1.1", w.says()[:3])
}

// A session that was restored in the middle of its upgrade goes on with the release that has all traffic by now.
func TestAnUpgradeThatWasPromotedMeanwhileGoesOn(t *testing.T) {
	t.Parallel()
	w, serves, old := upgraded(t)
	old.Upgrade, old.Release = &machine.Upgrade{From: "1.0", To: "1.1", Release: 2, Weight: 50, App: &serves}, &machine.App{Name: serves.Name, Version: "1.1"}
	require.Equal(t, 100, twice[machine.Shifted](w, "shift", 3, old).Weight)
	require.Equal(t, "1.1", w.says()[:3])
	require.Len(t, w.rows.all["acme.example.test"].Route.Targets, 1)
}

// The directory of all releases was lost: an upgrade is the way to another one, and what fails of it is taken back.
func TestAnUpgradeReplacesAReleaseThatWasLost(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App, b.Ledger = &app, ledger("tenant-acme-r1", "tenant-acme-r2")
	twice[machine.Route](w, "route", 2, b)
	require.NoError(t, w.Apps.Remove(t.Context(), apps.Release{Namespace: "default", Tenant: "tenant-acme", Name: app.Name, Owner: "instance_provisioning/default.acme.own", Fence: 3, Attempt: "x"}))

	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "sick", Release: 2}, &machine.App{Name: "tenant-acme-r2", Version: "sick"}
	require.Equal(t, "DEPLOYMENT_UNHEALTHY", w.perform("own", "deploy", 4, b).Failure.Code)
	twice[any](w, "withdraw", 5, b)
	_, err := w.Apps.Look(t.Context(), "default", "tenant-acme-r2")
	require.True(t, providers.IsNotFound(err), "%v", err)
	for i := range b.Ledger {
		if b.Ledger[i].Name == "tenant-acme-r2" {
			b.Ledger[i].State = session.Undone
		}
	}

	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "1.1", Release: 3, Weight: 5}, &machine.App{Name: "tenant-acme-r3", Version: "1.1"}
	next := twice[machine.App](w, "deploy", 6, b)
	b.Upgrade.App = &next
	require.Equal(t, 100, twice[machine.Shifted](w, "shift", 7, b).Weight)
	require.Equal(t, "1.1", w.says()[:3])
	twice[any](w, "retire", 8, b)
	require.Equal(t, "1.1", w.says()[:3])
}

// The release that is withdrawn has all requests, as the one before was lost: no retarget and no second rollback leads on.
func TestAReleaseThatReplacedALostOneSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	b.App, b.Ledger = &machine.App{Name: "tenant-acme-r1", Version: "1.0", Address: "127.0.0.1:1"}, ledger("tenant-acme-r1", "tenant-acme-r2")
	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "1.1", Release: 2, Weight: 5}, &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	next := twice[machine.App](w, "deploy", 1, b)
	b.Upgrade.App = &next
	require.Equal(t, 100, twice[machine.Shifted](w, "shift", 2, b).Weight)
	f := w.perform("own", "withdraw", 3, b).Failure
	require.NotNil(t, f)
	require.Contains(t, f.Message, "acme.example.test leads to the release tenant-acme-r2, and the one before was lost: resolve it as ready, and upgrade again")
	require.False(t, f.Retryable)
	require.Equal(t, "1.1", w.says()[:3])
}

// virtual is a kind whose releases share a server in front of them.
type virtual struct{ apps.Provider }

func (virtual) Virtual() {}

func TestReleasesBehindOneServerAreAskedByTheirHost(t *testing.T) {
	t.Parallel()
	w, serves, b := upgraded(t)
	b.App = &serves
	for _, own := range []bool{false, true} {
		if own {
			w.Apps = virtual{w.Apps}
		}
		twice[machine.Route](w, "route", 3, b)
		require.Equal(t, []domains.Target{{Address: serves.Address, Weight: 1, OwnHost: own}}, w.rows.all["acme.example.test"].Route.Targets)
	}
}
