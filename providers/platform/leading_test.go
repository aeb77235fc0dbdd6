//go:build linux

package platform_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform"
)

// The address of a release that ends may be another tenant's next: so none ends while a name leads there, whoever has bound it.
func TestAReleaseStaysWhileADomainLeadsThere(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App = &app
	w.bindings.lead("shop.acme.test", app.Address)
	w.bindings.stays = true
	b.Actions = machine.Undo(ledger(app.Name))
	undone := func(fence uint64) (done map[string]session.ActionResult) {
		done = map[string]session.ActionResult{}
		for _, r := range w.perform("own", "undo", fence, b).Data.(session.Results).Actions {
			done[r.Action] = r
		}
		return done
	}
	has := undone(2)
	require.Contains(t, has["delete_app:"+app.Name].Error, "shop.acme.test leads to the release tenant-acme-r1, and is not being removed: remove its domain")
	require.False(t, has["release_slug"].Done)
	_, err := w.Apps.Look(t.Context(), "default", app.Name)
	require.NoError(t, err)

	w.bindings.stays = false
	has = undone(3)
	require.Contains(t, has["delete_app:"+app.Name].Error, "shop.acme.test, which is being removed, leads to the release tenant-acme-r1 until then")
	_, err = w.Apps.Look(t.Context(), "default", app.Name)
	require.NoError(t, err)

	w.bindings.leads = nil
	for _, r := range undone(4) {
		require.True(t, r.Done, "%+v", r)
	}
	_, err = w.Apps.Look(t.Context(), "default", app.Name)
	require.True(t, providers.IsNotFound(err), "%v", err)
}

// late is where a name is bound when something else has happened that begins meanwhile.
type late struct {
	*bindings
	meanwhile func()
}

func (l *late) Point(ctx context.Context, to platform.Binding) (string, error) {
	l.meanwhile()
	return l.bindings.Point(ctx, to)
}

// The undo has found no domain, as that was not bound yet: nothing of it may stay, as the address that it leads to may be another tenant's next.
func TestADomainThatIsBoundAfterTheUndoIsTakenBack(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App, b.Platform.CustomDomain = &app, "shop.acme.test"
	w.Domains = &late{w.bindings, func() {
		undo := b
		undo.Actions = machine.Undo(ledger(app.Name))
		require.Nil(t, w.perform("own", "undo", 3, undo).Failure)
	}}
	require.NotNil(t, w.perform("own", "route", 2, b).Failure)
	w.nothing()
}

// Whether a domain without a label is the session's is told by what its ledger says of it, and one with a label by the generation.
func TestABindingSaysWhenAndByWhomItWasMade(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for state, made := range map[string]time.Time{session.Intended: {}, session.Created: at, session.Undone: {}} {
		w, b := setup(t), task("default.acme.own")
		b.Platform.CustomDomain, b.Generation = "shop.acme.test", 3
		b.Ledger = []session.Entry{{Kind: machine.KindDomain, Name: "shop.acme.test", State: state, At: at}}
		b.Actions = []session.Action{{Name: "cancel_domain_binding", Kind: machine.KindDomain}}
		require.Nil(t, w.perform("own", "undo", 2, b).Failure)
		require.Equal(t, made, w.bindings.removed.Made, state)
		require.Equal(t, uint64(3), w.bindings.removed.Life)
	}
}

// An undo that was told to skip the domain leaves it to the tenant, when all else is taken back.
func TestADomainThatAnUndoSkipsIsTheTenants(t *testing.T) {
	t.Parallel()
	for kept, actions := range map[bool][]session.Action{true: {{Name: "remove_route", Kind: machine.KindRoute}}, false: nil} {
		w, b := setup(t), task("default.acme.own")
		b.Platform.CustomDomain, b.Generation, b.Kept, b.Actions = "shop.acme.test", 3, kept, actions
		require.Nil(t, w.perform("own", "undo", 2, b).Failure)
		require.Equal(t, kept, w.bindings.removed.Kept)
		require.Equal(t, kept, w.bindings.removed.Host == "shop.acme.test")
	}
}
