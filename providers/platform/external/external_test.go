//go:build linux

package external_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/external"
	"github.com/bcc94042/instar/providers/platform/process"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// The test binary is also the program that runs templates, and the application of the tenants.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "run-template":
		os.Exit(builtin.Main(os.Args[2:]))
	case len(os.Args) > 2 && os.Args[1] == "application":
		os.Exit(apptest.Application(os.Args[2]))
	}
	os.Exit(m.Run())
}

const quick = "atexit_sleep_ms=0" // of programs that are built with the race detector

func versions(t *testing.T) map[string]app.Program {
	self, err := os.Executable()
	require.NoError(t, err)
	all := map[string]app.Program{}
	for _, v := range apptest.Versions {
		all[v] = app.Program{Command: []string{self, "application", v}, Env: map[string]string{"GORACE": quick}}
	}
	return all
}

// elsewhere is a provider in Go: the program that a user would write, around one that runs processes.
type elsewhere struct {
	t    *testing.T
	apps *process.Apps

	mu     sync.Mutex
	hashes map[string]string
	failed map[string]string
	begun  map[string]int // deployments that go on
	work   sync.WaitGroup
}

func (e *elsewhere) serve(nc *nats.Conn, names streams.Names) {
	for verb, do := range map[string]func(*external.Request) (external.Answer, error){
		external.VerbEnsure: func(q *external.Request) (a external.Answer, err error) {
			return a, e.apps.Ensure(context.Background(), app.Tenant{Namespace: q.Namespace, Name: q.Tenant, Owner: q.Owner})
		},
		external.VerbForget: func(q *external.Request) (a external.Answer, err error) {
			return a, e.apps.Forget(context.Background(), app.Tenant{Namespace: q.Namespace, Name: q.Tenant, Owner: q.Owner})
		},
		external.VerbRemove: func(q *external.Request) (a external.Answer, err error) {
			return a, e.remove(q)
		},
		external.VerbLook: e.look, external.VerbDeploy: e.deploy,
	} {
		_, err := nc.QueueSubscribe(names.Provider("instance", verb), "provider", func(m *nats.Msg) {
			var q external.Request
			err := json.Unmarshal(m.Data, &q)
			var a external.Answer
			if err == nil {
				a, err = do(&q)
			}
			if err != nil {
				a.Error = &external.Trouble{Code: providers.CodeOf(err), Message: err.Error()}
				var known *providers.Error
				if errors.As(err, &known) {
					a.Error.Message, a.Error.Fence = known.Message, known.Fence
				}
			}
			raw, _ := json.Marshal(a)
			_ = m.Respond(raw)
		})
		require.NoError(e.t, err)
	}
	require.NoError(e.t, nc.Flush())
}

func of(q *external.Request) app.Release {
	return app.Release{Namespace: q.Namespace, Tenant: q.Tenant, Name: q.Name, Owner: q.Owner, Fence: q.Fence, Attempt: q.Attempt, Version: q.Version, Env: q.Env, Secrets: q.Secrets}
}

func (e *elsewhere) look(q *external.Request) (external.Answer, error) {
	at, err := e.apps.Look(context.Background(), q.Namespace, q.Name)
	e.mu.Lock()
	defer e.mu.Unlock()
	a := external.Answer{Status: at.Status, Ready: at.Ready, Address: at.Address, Hash: e.hashes[q.Name]}
	if why := e.failed[q.Name]; why != "" {
		a.Status, a.Failed = why, true
	}
	return a, err
}

// remove ends a release. One that is being deployed is let come to its end for a moment: a deployment that was asked for before would start it again.
func (e *elsewhere) remove(q *external.Request) error {
	for began := time.Now(); time.Since(began) < 3*time.Second; {
		e.mu.Lock()
		goes := e.begun[q.Name] > 0
		e.mu.Unlock()
		if !goes || wait.Pause(e.t.Context(), 10*time.Millisecond) != nil {
			break
		}
	}
	return e.apps.Remove(context.Background(), of(q))
}

// deploy answers when the release is begun, or refused.
func (e *elsewhere) deploy(q *external.Request) (external.Answer, error) {
	e.mu.Lock()
	e.hashes[q.Name], e.failed[q.Name] = q.Hash, ""
	e.begun[q.Name]++
	e.mu.Unlock()
	ended := make(chan error, 1)
	e.work.Go(func() {
		_, err := e.apps.Deploy(e.t.Context(), of(q))
		var unhealthy *app.UnhealthyError
		if errors.As(err, &unhealthy) {
			e.mu.Lock()
			e.failed[q.Name] = unhealthy.Reason
			e.mu.Unlock()
			err = nil
		}
		e.mu.Lock()
		e.begun[q.Name]--
		e.mu.Unlock()
		ended <- err
	})
	for {
		select {
		case err := <-ended:
			return external.Answer{}, err
		default:
		}
		if _, err := e.apps.Look(context.Background(), q.Namespace, q.Name); err == nil {
			return external.Answer{}, nil
		}
		if err := wait.Pause(e.t.Context(), 10*time.Millisecond); err != nil {
			return external.Answer{}, err
		}
	}
}

// world is a place that servers reach by a prefix of their own.
func world(t *testing.T, e *streamstest.Env, names streams.Names, left func(*testing.T) []string) apptest.World {
	return apptest.World{
		Open: func(t *testing.T) (app.Provider, func()) {
			nc := e.Connect()
			return &external.Apps{NC: nc, Names: names, Versions: versions(t), Env: apptest.Env, Startup: 40 * time.Second}, nc.Close
		},
		Left: left,
	}
}

func prefixOf(t *testing.T) streams.Names {
	return streams.Names{Prefix: strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))}
}

func TestAProviderElsewhereKeepsTheContract(t *testing.T) {
	t.Parallel()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	apptest.Run(t, apptest.Suite{World: func(t *testing.T) apptest.World {
		self, err := os.Executable()
		require.NoError(t, err)
		dir := t.TempDir()
		apps, err := process.Open(process.Config{
			Dir: dir, Startup: 40 * time.Second, Grace: 5 * time.Second, Versions: versions(t), Self: []string{"/usr/bin/env", "GORACE=" + quick, self, "run-template"},
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		require.NoError(t, err)
		e, nc := &elsewhere{t: t, apps: apps, hashes: map[string]string{}, failed: map[string]string{}, begun: map[string]int{}}, env.Connect()
		t.Cleanup(func() { nc.Close(); e.work.Wait(); require.NoError(t, apps.Close(true)) })
		names := prefixOf(t)
		e.serve(nc, names)
		return world(t, env, names, func(t *testing.T) []string {
			return apptest.Entries(t, dir, "releases/*/home", "tenants/*")
		})
	}})
}

func TestWhereNobodyAnswers(t *testing.T) {
	t.Parallel()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	a := &external.Apps{NC: env.Connect(), Versions: versions(t), Within: 100 * time.Millisecond}
	_, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "no provider of instances answers on instar.provider.instance.look: start it")

	nc, answer := env.Connect(), atomic.Pointer[string]{}
	_, err = nc.Subscribe("instar.provider.instance.*", func(m *nats.Msg) {
		if said := answer.Load(); said != nil {
			_ = m.Respond([]byte(*said))
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	_, err = a.Look(t.Context(), "default", "x")
	require.ErrorContains(t, err, "does not answer")
	a.Within = 0
	for said, want := range map[string]string{"[": "cannot be read", `{"ready":true,"address":"here"}`: "no host:port", `{"ready":true}`: "no host:port"} {
		answer.Store(&said)
		_, err = a.Look(t.Context(), "default", "x")
		require.ErrorContains(t, err, want)
	}
}

// A program that hangs does not fail by itself: who tries again gets a new one, unless that is kept. What has become ready since stays.
func TestWhatWasNotReadyInTimeIsReplaced(t *testing.T) {
	t.Parallel()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	a, nc := &external.Apps{NC: env.Connect(), Versions: versions(t), Startup: time.Nanosecond}, env.Connect()
	var mu sync.Mutex
	var runs *external.Answer
	var done []string
	_, err := nc.Subscribe("instar.provider.instance.*", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var q external.Request
		answer, verb := external.Answer{}, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		switch _ = json.Unmarshal(m.Data, &q); verb {
		case external.VerbLook:
			if answer.Error = (&external.Trouble{Code: providers.NotFound}); runs != nil {
				answer = *runs
			}
		case external.VerbRemove:
			runs = nil
		case external.VerbDeploy:
			if runs == nil {
				runs = &external.Answer{Status: "starting", Hash: q.Hash}
			}
		}
		if verb != external.VerbLook {
			done = append(done, verb)
		}
		raw, _ := json.Marshal(answer)
		_ = m.Respond(raw)
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	kept, ready := errors.New("it serves"), &external.Answer{Ready: true, Address: "192.0.2.1:80"}
	for i, s := range []struct {
		is      *external.Answer // by then
		replace error
		says    string
		does    string
	}{
		{says: "not ready in time", does: "deploy"},
		{replace: kept, says: "it serves"},
		{says: "not ready in time", does: "remove deploy"},
		{says: "not ready in time", does: "remove deploy"},
		{is: ready, does: "deploy"},
		{is: &external.Answer{Status: "starts again"}, says: "not ready in time", does: "deploy"},
		{says: "not ready in time", does: "remove deploy"},
	} {
		r := apptest.Release(1, "1.0")
		r.Replace = func(context.Context) error { return s.replace }
		mu.Lock()
		if done = nil; s.is != nil {
			s.is.Hash, runs = runs.Hash, s.is
		}
		mu.Unlock()
		_, err := a.Deploy(t.Context(), r)
		if s.says == "" {
			require.NoError(t, err, i)
		} else {
			require.ErrorContains(t, err, s.says, i)
		}
		mu.Lock()
		require.Equal(t, s.does, strings.Join(done, " "), i)
		mu.Unlock()
	}
}

// What a provider elsewhere says of a failure may have what it was given, whatever it was asked.
func TestNoAnswerTellsValues(t *testing.T) {
	t.Parallel()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	a := &external.Apps{NC: env.Connect(), Versions: map[string]app.Program{"1.0": {Env: map[string]string{"KEY": "of-the-version"}}}, Env: map[string]string{"COLOR": "of-all-releases"}}
	r, tenant := apptest.Release(1, "1.0"), app.Tenant{Namespace: "default", Name: "tenant-acme", Owner: "default.acme.own"}
	r.Secrets = map[string]string{"TOKEN": "of-the-tenant"}
	const says = "cannot: of-the-version of-all-releases of-the-tenant"
	nc, fails := env.Connect(), atomic.Pointer[string]{}
	_, err := nc.Subscribe("instar.provider.instance.*", func(m *nats.Msg) {
		var answer external.Answer
		switch verb := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]; {
		case verb == *fails.Load():
			answer = external.Answer{Error: &external.Trouble{Code: providers.Internal, Message: says}}
		case verb == external.VerbLook:
			answer = external.Answer{Error: &external.Trouble{Code: providers.NotFound, Message: "there is none"}}
		}
		raw, _ := json.Marshal(answer)
		_ = m.Respond(raw)
	})
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	for verb, does := range map[string]func() error{
		external.VerbEnsure: func() error { return a.Ensure(t.Context(), tenant) },
		external.VerbForget: func() error { return a.Forget(t.Context(), tenant) },
		external.VerbRemove: func() error { return a.Remove(t.Context(), r) },
		external.VerbLook:   func() error { _, err := a.Deploy(t.Context(), r); return err },
		external.VerbDeploy: func() error { _, err := a.Deploy(t.Context(), r); return err },
	} {
		fails.Store(&verb)
		err := does()
		require.ErrorContains(t, err, "cannot: *** ***", verb)
		require.NotContains(t, err.Error(), "of-the-version", verb)
		if verb != external.VerbEnsure && verb != external.VerbForget { // which are told no secrets
			require.NotContains(t, err.Error(), "of-the-tenant", verb)
		}
	}
}

// The example of a provider in Node keeps the whole contract, too.
func TestProvidersElsewhere(t *testing.T) {
	t.Parallel()
	tools, err := filepath.Abs(filepath.Join("..", "..", "..", ".tools", "samples"))
	require.NoError(t, err)
	node, err := exec.LookPath("node")
	if _, missing := os.Stat(filepath.Join(tools, "node_modules", "nats")); err != nil || missing != nil {
		t.Skip("node is not here, or its module nats: make samples installs it")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "examples", "instances", "provider.mjs"))
	require.NoError(t, err)
	script := filepath.Join(tools, "node_modules", "instances-test.mjs")
	require.NoError(t, os.WriteFile(script, text, 0o600))
	t.Cleanup(func() { _ = os.Remove(script) })
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS, Listen: "127.0.0.1:0", Open: true})
	t.Run("Node", func(t *testing.T) {
		apptest.Run(t, apptest.Suite{World: func(t *testing.T) apptest.World {
			names, dir, said := prefixOf(t), t.TempDir(), &lockedbuffer.Buffer{}
			cmd := exec.Command(node, script, env.Server.ClientURL(), dir, names.Provider("instance", ""))
			cmd.Stdout, cmd.Stderr = said, said
			require.NoError(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); <-ended; t.Log(said.String()) })
			require.Eventually(t, func() bool { return strings.Contains(said.String(), "ready") }, 30*time.Second, 20*time.Millisecond, "it listens")
			return world(t, env, names, func(t *testing.T) []string {
				return apptest.Entries(t, dir, "releases/*", "tenants/*")
			})
		}})
	})
}
