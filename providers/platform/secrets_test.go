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

// ring has a key for each release, by its name.
type ring map[string]string

func (r ring) Give(_ context.Context, tenant, release, owner string, _ uint64) (credentials, endpoint string, err error) {
	r[release] = "of-the-tenant"
	return "aws_secret_access_key = " + r[release], "http://127.0.0.1:8333/" + tenant + "/" + owner, nil
}

func (r ring) Known(context.Context, string) (all []string, err error) {
	for _, secret := range r {
		all = append(all, "aws_secret_access_key = "+secret)
	}
	return all, nil
}

func (r ring) Revoke(_ context.Context, _, release, _ string, _ uint64) error {
	delete(r, release)
	return nil
}

// A release gets its key with its deploy, no answer tells it, and it ends with the release, not before.
func TestAKeyIsThatOfItsRelease(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	keys := ring{}
	w.Keys = keys
	b.Storage = &machine.Storage{Bucket: "tenant-acme"}
	first := twice[machine.App](w, "deploy", 1, b)
	b.App, b.Upgrade, b.Release = &first, &machine.Upgrade{From: "1.0", To: "1.1", Release: 2}, &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	next := twice[machine.App](w, "deploy", 2, b)
	b.Upgrade.App = &next
	require.Equal(t, ring{"tenant-acme-r1": "of-the-tenant", "tenant-acme-r2": "of-the-tenant"}, keys)
	kind := w.Apps
	w.Apps = telling{kind, false}
	f := w.perform("own", "withdraw", 3, b).Failure
	require.NotNil(t, f)
	require.Equal(t, "postgres failed: ***", f.Message)
	require.Len(t, keys, 2)
	w.Apps = kind
	require.Nil(t, w.perform("own", "withdraw", 4, b).Failure)
	require.Equal(t, ring{"tenant-acme-r1": "of-the-tenant"}, keys)
}
