package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// sampleID is the service that dev brings up when it is not there.
const sampleID = "hello"

// startSample asks for the sample service in dev. It is on its way when the banner is shown.
func (a *app) startSample(ctx context.Context) error {
	if a.mode != config.Dev || a.sampleImage() == "" {
		return nil
	}
	body, err := json.Marshal(service.CreateBody{
		Spec:   service.Spec{Image: a.sampleImage(), Env: map[string]string{"GREETING": "Hello from Instar"}},
		Labels: map[string]string{"sample": "true"},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	m, err := a.deps.Commands.AskMsg(ctx, streams.Command{
		Machine: "service", Key: machines.Key("default", "", sampleID), Name: service.CommandCreate, ID: "sample", Actor: "instar dev", Reason: "the sample service", Body: body,
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot ask for the sample service: %w", err)
	}
	var answer machines.Answer
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	a.sample = "is on its way to READY"
	if r := answer.Refusal; r != nil && r.Code != machines.CodeExists {
		a.log.Warn("the sample service was refused", "reason", r.Message)
	}
	if answer.Refusal != nil || streams.Replayed(m) {
		a.sample = "was here before"
		if e, ok := a.indexes["service"].Get(machines.Key("default", "", sampleID)); ok {
			a.sample += " and is " + e.State
		}
	}
	return nil
}

// banner tells a person where things are and what to try.
func (a *app) banner() {
	profile := a.profile()
	a.log.Info("ready", "http", a.url, "nats", a.natsURL(), "data", a.cfg.Data, "durability", profile, "node", a.node)
	if a.mode != config.Dev {
		return
	}
	sample, commands := a.suggestions()
	fmt.Fprintf(a.out, `
Instar is running.
  API and docs   %s/docs
  NATS           %s
  Data           %s   (durability %s)
%s
Try, in another terminal and the same directory:
%s
Stop with Ctrl-C: the services go on running, and everything is found again at the next start.
`, a.url, a.natsURL(), a.cfg.Data, profile, sample+a.simulated(), commands)
}

// profile is what an acknowledged write survives. Of a server that is not ours only its operator can tell.
func (a *app) profile() string {
	if a.cfg.NATS.Attached() {
		return "attached: as that NATS server is configured (sync_interval)"
	}
	return a.cfg.Durability + ": survives " + streams.Profile(a.cfg.Durability).Survives()
}

func (a *app) natsURL() string {
	if a.server != nil {
		if u := a.server.ClientURL(); u != "" {
			return u
		}
		return "embedded, not listening"
	}
	if name := a.cfg.NATS.Context; name != "" {
		return "context " + name
	}
	return a.cfg.Redacted().NATS.URL
}
