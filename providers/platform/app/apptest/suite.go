// Package apptest is the contract of every provider of tenants' instances, as one suite of tests, with the application that the tests run.
package apptest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Suite is a kind of provider with what the contract needs to be asked of it.
type Suite struct {
	// World makes a place for one test, with [Versions] and [Env].
	World func(t *testing.T) World
	// Ephemeral says that its releases have no directories.
	Ephemeral bool
}

// World is a place where releases run.
type World struct {
	// Open is the provider of a server that starts there; stop ends that server, and no release.
	Open func(t *testing.T) (p app.Provider, stop func())
	// Left are the releases that run there, and the directories that there are.
	Left func(t *testing.T) []string
}

const owner = "default.acme.own"

// Run asks for the whole contract, each point in a test of its own, in parallel.
func Run(t *testing.T, s Suite) {
	for name, test := range map[string]func(t *testing.T, w World){
		"ReleasesRunBesideEachOther":      s.runBesideEachOther,
		"ARestartedServerFindsWhatRuns":   restart,
		"WhatEndsIsStartedAgain":          crash,
		"AFailureIsTold":                  failure,
		"SecretsAreNotInMessages":         secrets,
		"AnOlderAttemptMakesNothing":      older,
		"WhatIsNotThere":                  nothing,
		"WhatCannotRunIsInvalid":          invalid,
		"OtherValuesReplace":              replace,
		"AnEndedContextEndsTheCall":       ended,
		"WhatATenantHasIsItsOwners":       owners,
		"RemoveEndsWhatDoesNotGetHealthy": unhealthyGoes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, s.World(t))
		})
	}
}

// opened is a provider until the end of the test.
func opened(t *testing.T, w World) app.Provider {
	t.Helper()
	p, stop := w.Open(t)
	t.Cleanup(stop)
	return p
}

// Release is one of the tenant acme.
func Release(number int, version string) app.Release {
	return app.Release{
		Namespace: "default", Tenant: "tenant-acme", Name: fmt.Sprintf("tenant-acme-r%d", number), Owner: owner, Fence: uint64(10 * number), Attempt: "deploy-1", // #nosec G115 -- of a test
		Version: version, Env: map[string]string{"TENANT_ID": "acme", "API_KEY": Env["API_KEY"]}, Secrets: map[string]string{"DATABASE_URL": "postgres://acme:secret@db/acme"},
	}
}

var acme = app.Tenant{Namespace: "default", Name: "tenant-acme", Owner: owner}

// Ask asks an application for its facts, for as long as it starts again.
func Ask(t *testing.T, address string) (f Facts) {
	t.Helper()
	var err error
	require.Eventually(t, func() bool {
		f, err = asked(address)
		return err == nil
	}, 30*time.Second, 20*time.Millisecond, "it answers at %s", address)
	return f
}

func asked(address string) (f Facts, err error) {
	resp, err := (&http.Client{Timeout: 20 * time.Second}).Get("http://" + address)
	if err != nil {
		return f, err
	}
	raw, err := io.ReadAll(resp.Body)
	return f, errors.Join(err, resp.Body.Close(), json.Unmarshal(raw, &f))
}

func deployed(t *testing.T, p app.Provider, r app.Release) string {
	t.Helper()
	address, err := p.Deploy(t.Context(), r)
	require.NoError(t, err)
	return address
}

func (s Suite) runBesideEachOther(t *testing.T, w World) {
	p := opened(t, w)
	require.NotEmpty(t, p.Kind())
	require.NoError(t, p.Ensure(t.Context(), acme))
	first := deployed(t, p, Release(1, "1.0"))
	require.Equal(t, first, deployed(t, p, Release(1, "1.0")), "the same again")
	second := deployed(t, p, Release(2, "1.1"))
	one, two := Ask(t, first), Ask(t, second)
	require.Equal(t, "1.0", one.Version)
	require.Equal(t, "1.1", two.Version)
	require.Equal(t, "acme", one.Tenant)
	require.Equal(t, "postgres://acme:secret@db/acme", one.Secret)
	require.Equal(t, one.Dir, two.Dir, "the tenant's")
	require.Equal(t, s.Ephemeral, one.Dir == "")
	require.Equal(t, s.Ephemeral, one.Home == two.Home, "the release's own")
	at, err := p.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.Equal(t, app.Rollout{Status: "ready", Ready: true, Address: first}, at)

	for range 2 {
		require.NoError(t, p.Remove(t.Context(), Release(1, "")))
	}
	_, err = asked(first)
	require.Error(t, err, "it has gone")
	require.Equal(t, two.PID, Ask(t, second).PID, "the other one has not")
	require.NoError(t, p.Remove(t.Context(), Release(2, "")))
	for range 2 {
		require.NoError(t, p.Forget(t.Context(), acme))
	}
	require.Empty(t, w.Left(t))
}

func restart(t *testing.T, w World) {
	p, stop := w.Open(t)
	address, err := p.Deploy(t.Context(), Release(1, "1.0"))
	stop()
	require.NoError(t, err)
	before := Ask(t, address)
	p = opened(t, w)
	require.Equal(t, address, deployed(t, p, Release(1, "1.0")))
	require.Equal(t, before.PID, Ask(t, address).PID, "it has run all the time")
	require.NoError(t, p.Remove(t.Context(), Release(1, "")))
	_, err = asked(address)
	require.Error(t, err, "it is the next server's to remove")
}

func crash(t *testing.T, w World) {
	p := opened(t, w)
	address := deployed(t, p, Release(1, "1.0"))
	before := Ask(t, address)
	require.NoError(t, syscall.Kill(before.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		f, err := asked(address)
		return err == nil && f.PID != before.PID
	}, 30*time.Second, 20*time.Millisecond, "it answers again under its address")
}

func failure(t *testing.T, w World) {
	p := opened(t, w)
	for range 2 {
		_, err := p.Deploy(t.Context(), Release(1, "sick"))
		var unhealthy *app.UnhealthyError
		require.ErrorAs(t, err, &unhealthy)
		require.ErrorContains(t, err, "the schema is not there")
	}
	at, err := p.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.False(t, at.Ready)
	require.Contains(t, at.Status, "the schema is not there")
	require.Equal(t, "1.0", Ask(t, deployed(t, p, Release(1, "1.0"))).Version)
}

func unhealthyGoes(t *testing.T, w World) {
	p := opened(t, w)
	_, err := p.Deploy(t.Context(), Release(1, "sick"))
	require.Error(t, err)
	require.NoError(t, p.Remove(t.Context(), Release(1, "")))
	require.NoError(t, p.Forget(t.Context(), acme))
	require.Empty(t, w.Left(t))
}

func secrets(t *testing.T, w World) {
	p := opened(t, w)
	_, err := p.Deploy(t.Context(), Release(1, "leaky"))
	var unhealthy *app.UnhealthyError
	require.ErrorAs(t, err, &unhealthy)
	require.NotContains(t, unhealthy.Log, "secret")
	require.NotContains(t, unhealthy.Log, "word@")
	require.NotContains(t, unhealthy.Log, Env["API_KEY"])
	require.ErrorContains(t, err, "cannot enter *** by ***, nor postgres://other:***@db: the password *** is wrong")
	at, err := p.Look(t.Context(), "default", "tenant-acme-r1")
	require.NoError(t, err)
	require.Contains(t, at.Status, "cannot enter *** by ***, nor postgres://other:***@db: the password *** is wrong")
}

func older(t *testing.T, w World) {
	p := opened(t, w)
	require.NoError(t, p.Remove(t.Context(), Release(2, "")))
	late := Release(2, "1.0")
	late.Fence--
	_, err := p.Deploy(t.Context(), late)
	require.True(t, providers.IsFenced(err), "%v", err)
	_, err = p.Look(t.Context(), "default", late.Name)
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.Empty(t, w.Left(t))
	deployed(t, p, Release(2, "1.0"))
}

func nothing(t *testing.T, w World) {
	p := opened(t, w)
	_, err := p.Look(t.Context(), "default", "tenant-acme-r9")
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.NoError(t, p.Remove(t.Context(), Release(9, "")))
	require.NoError(t, p.Forget(t.Context(), acme))
	require.Empty(t, w.Left(t))
	require.True(t, p.Has("1.0"))
	require.False(t, p.Has("2.0"))
}

func invalid(t *testing.T, w World) {
	p := opened(t, w)
	for what, change := range map[string]func(*app.Release){
		"version": func(r *app.Release) { r.Version = "2.0" },
		"tenant":  func(r *app.Release) { r.Tenant = "../x" },
		"name":    func(r *app.Release) { r.Name = "a/b" },
		"env":     func(r *app.Release) { r.Env = map[string]string{"LD_PRELOAD": "x"} },
		"secret":  func(r *app.Release) { r.Secrets = map[string]string{"../X": "x"} },
	} {
		r := Release(1, "1.0")
		change(&r)
		_, err := p.Deploy(t.Context(), r)
		require.True(t, providers.IsInvalid(err), "%s: %v", what, err)
	}
	require.True(t, providers.IsInvalid(p.Forget(t.Context(), app.Tenant{Namespace: "default", Name: "..", Owner: owner})))
}

func replace(t *testing.T, w World) {
	p := opened(t, w)
	before := Ask(t, deployed(t, p, Release(1, "1.0")))
	other := Release(1, "1.1")
	other.Replace = func(context.Context) error { return errors.New("it serves") }
	_, err := p.Deploy(t.Context(), other)
	require.ErrorContains(t, err, "it serves")
	at, err := p.Look(t.Context(), "default", other.Name)
	require.NoError(t, err)
	require.Equal(t, before.PID, Ask(t, at.Address).PID)
	other.Replace = nil
	require.Equal(t, "1.1", Ask(t, deployed(t, p, other)).Version)
}

func ended(t *testing.T, w World) {
	p := opened(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Deploy(ctx, Release(1, "1.0"))
	require.Equal(t, providers.Timeout, providers.CodeOf(err), "%v", err)
}

func owners(t *testing.T, w World) {
	p := opened(t, w)
	require.NoError(t, p.Ensure(t.Context(), acme))
	require.NoError(t, p.Ensure(t.Context(), acme))
	next := acme
	next.Owner = "default.rival.own"
	require.True(t, providers.IsInvalid(p.Ensure(t.Context(), next)))
	require.NoError(t, p.Forget(t.Context(), next))
	require.True(t, providers.IsInvalid(p.Ensure(t.Context(), next)), "it is still there")
	require.NoError(t, p.Forget(t.Context(), acme))
	require.NoError(t, p.Ensure(t.Context(), next))
	require.NoError(t, p.Forget(t.Context(), next))
	require.Empty(t, strings.Join(w.Left(t), " "))
}
