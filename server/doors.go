package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/server/backlog"
	"github.com/bcc94042/instar/server/buffers"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/publish"
)

// startAPI opens the doors: HTTP, and requests over NATS. Then providers do what needs these.
func (a *app) startAPI(ctx context.Context) error {
	leave, err := a.takeTurn(ctx)
	if err != nil {
		return err
	}
	err = a.openAPI(ctx)
	leave() // what providers do now may be to add a machine
	if err != nil {
		return err
	}
	a.mu.Lock()
	hosts := slices.Clone(a.hosts)
	a.mu.Unlock()
	for _, h := range hosts {
		if err := h.begin(ctx, a.url); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) openAPI(ctx context.Context) error {
	nc, js, err := a.connect("api")
	if err != nil {
		return err
	}
	appender, commands, err := a.writers(nc, a.deps.Names)
	if err != nil {
		return err
	}
	commands.Gate = a.disk.Err
	b := a.opts.Build.Filled()
	files, _ := OpenFiles() // 0 where nobody says
	bounds := a.cfg.Limits.API(files)
	a.tellLimits(bounds)
	doors := api.Options{
		Machines: a.machines, Commands: commands, NC: nc, JS: js, Names: a.deps.Names, Indexes: a.indexes,
		DeadLetters: letters{publish.DeadLetters{JS: js, Names: a.deps.Names, Appender: appender}},
		Backup:      a.backup,
		Nodes:       nodes{a.member}, NodeLeads: a.leads,
		Tokens: a.cfg.Auth.APITokens(), SignIn: a.cfg.Auth.OIDC.API(), Users: a.cfg.NATS.APIUsers(), Open: len(a.cfg.Auth.Tokens) == 0, Hosts: a.cfg.HTTP.AllowedHosts(), RequireIfMatch: a.cfg.HTTP.RequiringIfMatch(), ReadOnlyUI: a.cfg.UI.ReadOnly, TraceURL: a.cfg.UI.Trace, GrafanaURL: a.cfg.UI.Grafana, KeysFor: a.cfg.IdempotencyWindow,
		Limits: bounds, Buffers: buffers.Of(bounds, buffers.AtOnce{Effects: a.cfg.Effects.Concurrency, Tasks: a.cfg.Tasks.AtOnce()}), Timeouts: a.cfg.HTTP.APITimeouts(),
		Ready: func() bool { return !a.stopping.Load() }, Checks: a.checks,
		Version: admin.Version{Version: b.Version, Commit: b.Commit, Built: b.Date}, Profile: a.profile(), Program: a.cfg.Program(),
		Registry: a.registry, Tracer: tracer(), Log: a.log,
	}
	if a.opts.Absent != nil {
		doors.Absent = a.opts.Absent(a.cfg)
	}
	for _, set := range each(a, func(h *Host) []func(*api.Options) { return h.doors }) {
		set(&doors)
	}
	if a.api, err = api.New(doors); err != nil {
		return err
	}
	if err := errors.Join(a.api.Micro(ctx), a.registry.Register(a.disk), a.startBacklog(ctx, js)); err != nil {
		return err
	}
	tlsConfig, err := ListenerTLS(config.TLS{Cert: a.cfg.HTTP.TLS.Cert, Key: a.cfg.HTTP.TLS.Key}, a.log)
	if err != nil {
		return fmt.Errorf("HTTP listener: %w", err)
	}
	listener, err := net.Listen("tcp", a.cfg.HTTP.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen for HTTP (choose another address with --http): %w", err)
	}
	a.hosts[0].Listens(listener.Addr().String())
	a.url = "http://" + listener.Addr().String()
	listener = a.api.Listen(listener)
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
		a.url = "https://" + listener.Addr().String()
	}
	a.member.Announce(a.url)
	srv := a.api.HTTPServer(a.cfg.HTTP.Listen, tlsConfig)
	a.running.Go(func() {
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			a.breaks(fmt.Errorf("the HTTP server ended: %w", err))
		}
	})
	a.onStop("the HTTP server", func(stop context.Context) error {
		err := a.api.Close() // ends the watches, which Shutdown would wait for
		err = errors.Join(err, srv.Shutdown(stop))
		a.running.Wait()
		return err
	})
	return nil
}

// startBacklog looks at consumers and streams for the metrics.
func (a *app) startBacklog(ctx context.Context, js jetstream.JetStream) error {
	b := backlog.New(js, a.deps.Names)
	a.goes(ctx, "the look at consumers", b.Run)
	return a.registry.Register(b)
}
