//go:build linux

package platform_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	apps "github.com/bcc94042/instar/providers/platform/app"
)

// telling is a kind that repeats what its releases were given, as a provider elsewhere may.
type telling struct {
	apps.Provider
	lost bool // it answers no look
}

const tells = "postgres failed: of-the-tenant"

func (l telling) Look(ctx context.Context, namespace, name string) (apps.Rollout, error) {
	if l.lost {
		return apps.Rollout{}, providers.Errorf(providers.Internal, tells)
	}
	at, err := l.Provider.Look(ctx, namespace, name)
	at.Status = tells
	return at, err
}

func (telling) Remove(context.Context, apps.Release) error {
	return providers.Errorf(providers.Invalid, tells)
}

// What is asked after a deploy has no secrets, and its answers are told without them, also where some cannot be read any more.
func TestNoAnswerAfterADeployTellsSecrets(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	w.Secrets = func(enterprise string, _ *database.Allocated) (map[string]string, error) {
		require.Equal(t, "acme", enterprise)
		return map[string]string{"TOKEN": "of-the-tenant"}, nil
	}
	first := twice[machine.App](w, "deploy", 1, b)
	b.App, b.Upgrade, b.Release = &first, &machine.Upgrade{From: "1.0", To: "1.1", Release: 2}, &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	next := twice[machine.App](w, "deploy", 2, b)
	b.Upgrade.App = &next
	w.Secrets = func(string, *database.Allocated) (map[string]string, error) {
		return map[string]string{"TOKEN": "of-the-tenant"}, providers.Errorf(providers.Invalid, "there are no credentials for the bucket")
	}
	for _, w.Apps = range []apps.Provider{telling{w.Apps, false}, telling{w.Apps, true}} {
		for _, effect := range []string{"withdraw", "retire"} {
			f := w.perform("own", effect, 3, b).Failure
			require.NotNil(t, f, effect)
			require.Equal(t, "postgres failed: ***", f.Message, effect)
		}
	}
	undo := b
	undo.Actions = machine.Undo(ledger(next.Name))
	r := w.try("own", "undo", 4, 9, undo)
	require.Nil(t, r.Failure)
	for _, a := range r.Data.(session.Results).Actions {
		require.NotContains(t, a.Error, "of-the-tenant", a.Action)
	}
	e := machine.Machine.New("default", "acme", "own")
	d := &machine.Data{Request: machine.RequestBody{EnterpriseID: "acme"}}
	d.Ledger, d.Phase = []session.Entry{{Kind: machine.KindApp, Name: first.Name, State: session.Intended}}, session.Executing
	e.State, e.Data = machine.Deploying, d
	_, err := w.Look(t.Context(), &e, false)
	require.ErrorContains(t, err, "postgres failed: ***")
	require.NotContains(t, err.Error(), "of-the-tenant")
	w.Apps = telling{w.Apps.(telling).Provider, false}
	found, err := w.Look(t.Context(), &e, false)
	require.NoError(t, err)
	require.Equal(t, first.Name+": postgres failed: ***", found.Data.(machine.Rollout).Status)
}
