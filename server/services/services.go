// Package services serves machines/service: in the gateway that the configuration names.
package services

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/providers/simulated"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// Provider serves machines/service: in the gateway that the configuration names.
func Provider() server.Provider {
	return server.Provider{Open: openServices, Known: map[string][]string{"image": {"hello", "static"}}}
}

func openServices(_ context.Context, h *server.Host) (server.Work, error) {
	s := &sample{h: h}
	h.Serving(s.start)
	h.Try(s.hint)
	if h.Config.Gateway == config.GatewayExternal {
		return server.Work{Performer: effects.External}, nil
	}
	gateway, err := openGateway(h)
	if err != nil {
		return server.Work{}, err
	}
	serving := providers.Serving{Gateway: gateway, ReadyStale: h.Config.Observe.ReadyStale, Log: h.Log}
	return server.Work{Performer: serving, Looker: serving, Every: h.Config.Observe.Every}, nil
}

// openGateway opens what services run in. The process gateway takes up what an earlier process of this program left running.
func openGateway(h *server.Host) (providers.Gateway, error) {
	switch h.Config.Gateway {
	case config.GatewaySimulated:
		return &simulated.Gateway{Observed: 200 * time.Millisecond, Ready: time.Second}, nil
	case config.GatewayKnative:
		return openKnative(h.Config.Gateways.Knative, h.Log)
	}
	templates := map[string]process.Template{}
	for name, t := range h.Config.Gateways.Process.Templates {
		templates[name] = process.Template{Command: t.Command, Env: t.Env, Dir: t.Dir, Socket: t.Socket}
	}
	gateway, err := process.Open(process.Config{
		Dir: filepath.Join(h.Config.Data, "process"), Sites: filepath.Join(h.Config.Data, "sites"), Host: h.Config.Gateways.Process.Host, Templates: templates, Log: h.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot open the process gateway: %w", err)
	}
	h.OnStop("the process gateway", func(context.Context) error { return gateway.Close(h.Config.StopServices) })
	return gateway, nil
}

// openKnative reads the configuration of the cluster. Whether its API server is up shows with the first effect.
func openKnative(k config.Knative, log *slog.Logger) (*knative.Gateway, error) {
	knative.LogClient(log)
	gateway, err := knative.Open(knative.Config{Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, Owner: k.Owner, Images: k.Images, Log: log})
	if err != nil {
		return nil, fmt.Errorf("cannot open the knative gateway: %w", err)
	}
	return gateway, nil
}
