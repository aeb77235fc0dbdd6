package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// demoDiscoveryCommand shows what discovery promises.
func demoDiscoveryCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "discovery", Short: "Five servers are slowed, restarted, killed and drained while clients call them", Args: command.Arguments(),
		Long: `Starts the registry and five HTTP servers in this process, all on loopback and in a directory that is removed again. The
servers register themselves; four callers find them by name and call them all the time, half of the calls with a method
that is never repeated. Then one server is slow, all are restarted one after the other, one flaps, one freezes, one dies
and one is drained. The exit code is 1 when a call fails because of a restart or a drain, when a death is noticed too
late, or when what flaps is not held down.`,
		Example: "  instar demo discovery\n  instar demo discovery --fast",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &discoveryDemo{options: p.Options, out: cmd.OutOrStdout(), began: time.Now(), ttl: 3 * time.Second, grace: 1500 * time.Millisecond, interval: time.Second, watch: 3 * time.Second, slack: 500 * time.Millisecond}
			if fast, _ := cmd.Flags().GetBool("fast"); fast { // declared below
				d.hurry()
			}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().Bool("fast", false, "about 15 seconds instead of 40")
	return cmd
}

// discoveryDemo is one run.
type discoveryDemo struct {
	options    server.Options // of the registry
	out        io.Writer
	began      time.Time
	ttl, grace time.Duration
	interval   time.Duration // of probes
	watch      time.Duration // how long each act is looked at
	slack      time.Duration // a death may be noticed so much later than the settings say

	registry *client.Client
	found    *client.Resolver
	servers  []*demoWeb
	callers  *demoCallers

	held                 time.Duration
	silent, hard         time.Duration
	silentMost, hardMost time.Duration
	restarts, drains     *demoCount
}

func (d *discoveryDemo) hurry() {
	d.ttl, d.grace, d.interval, d.watch = time.Second, 500*time.Millisecond, 250*time.Millisecond, time.Second
}

func (d *discoveryDemo) tell(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *discoveryDemo) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "instar-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stop, err := d.startRegistry(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	defer d.closeServers()
	if err := d.startServers(ctx); err != nil {
		return err
	}
	d.callers = startCallers(ctx, d.registry)
	defer d.callers.stop()
	for _, act := range []func(context.Context) error{d.meet, d.slow, d.restart, d.flap, d.freeze, d.die, d.drain} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	d.callers.stop()
	return d.verdict()
}

// startRegistry runs the whole server in this process.
func (d *discoveryDemo) startRegistry(ctx context.Context, dir string) (stop func() error, err error) {
	address, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level, cfg.StopServices = dir, address, "", "error", true
	cfg.Outbox.Postgres, cfg.Gateway = config.PostgresOff, config.GatewaySimulated
	d.options.Out = nil
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, cfg, d.options) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	d.registry = &client.Client{URLs: []string{"http://" + address}, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	err = Await(ctx, "the registry", func() error {
		resp, err := d.registry.HTTP.Get(d.registry.URLs[0] + "/readyz") // loopback, and await gives up
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	d.tell("the registry runs at %s", d.registry.URLs[0])
	return stop, nil
}

// startServers starts five: three that send heartbeats and two that are probed.
func (d *discoveryDemo) startServers(ctx context.Context) error {
	for i, name := range []string{"anna", "bert", "cleo", "dora", "emil"} {
		check := client.Check{Type: client.CheckTTL, TTL: d.ttl, Grace: d.grace}
		if i >= 3 {
			check = client.Check{Type: client.CheckHTTP, Path: "/health", Interval: d.interval, Timeout: d.interval}
		}
		s := &demoWeb{name: name, check: check, registry: d.registry}
		if err := s.start(ctx); err != nil {
			return err
		}
		d.servers = append(d.servers, s)
	}
	return nil
}

func (d *discoveryDemo) closeServers() {
	if d.callers != nil {
		d.callers.stop()
	}
	if d.found != nil {
		d.found.Close()
	}
	for _, s := range d.servers {
		s.kill()
	}
	d.registry.HTTP.CloseIdleConnections()
}

// meet waits until all are found.
func (d *discoveryDemo) meet(ctx context.Context) error {
	began := time.Now()
	var err error
	if d.found, err = d.registry.Resolve(ctx, demoService, client.Options{}); err != nil {
		return err
	}
	if _, err := d.until(ctx, "all five are found", func(names []string) bool { return len(names) == len(d.servers) }); err != nil {
		return err
	}
	d.tell("anna, bert and cleo send heartbeats (TTL %s, grace %s), dora and emil are probed every %s; all are found %s later",
		d.ttl, d.grace, d.interval, round(time.Since(began)))
	d.tell("4 callers call http://%s.instar/ all the time, by least in flight", demoService)
	return wait.Pause(ctx, d.watch/2)
}

// until waits until what is found is as it should be, and says when that was.
func (d *discoveryDemo) until(ctx context.Context, what string, holds func(names []string) bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	met := make(chan time.Time, 1)
	stop := d.found.Subscribe(func(all []client.Endpoint) {
		var names []string
		for _, e := range all {
			names = append(names, e.Payload["name"])
		}
		if holds(names) {
			select {
			case met <- time.Now():
			default:
			}
		}
	})
	defer stop()
	select {
	case at := <-met:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("half a minute is over, and it is not so that %s", what)
	}
}

// without says whether a server is not found.
func without(name string) func([]string) bool {
	return func(names []string) bool { return !slices.Contains(names, name) }
}

// verdict says whether all promises were kept.
func (d *discoveryDemo) verdict() error {
	var broken []string
	promise := func(kept bool, format string, args ...any) {
		if !kept {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	promise(d.restarts.failed == 0, "%d calls failed during restarts: %v", d.restarts.failed, d.restarts.first)
	promise(d.drains.failed == 0, "%d calls failed during a drain: %v", d.drains.failed, d.drains.first)
	promise(d.silent <= d.silentMost, "the frozen server was found for %s; promised are %s", round(d.silent), d.silentMost)
	promise(d.hard <= d.hardMost, "the dead server was found for %s; promised are %s", round(d.hard), d.hardMost)
	promise(d.held > 0, "the server that flaps was not held down")
	fmt.Fprintf(d.out, "failed calls: %d of %d during drains and restarts · silent death noticed in %s (at most %s) · hard death by probe in %s (at most %s) · flapping held down for %s\n",
		d.restarts.failed+d.drains.failed, d.restarts.calls+d.drains.calls, round(d.silent), d.silentMost, round(d.hard), d.hardMost, round(d.held))
	if len(broken) > 0 {
		return errors.New(strings.Join(broken, "; "))
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// stateOf asks the registry how an instance stands.
func (d *discoveryDemo) stateOf(ctx context.Context, s *demoWeb) (state string, held time.Time, err error) {
	var e struct {
		State string        `json:"state"`
		Data  instance.Data `json:"data"`
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.registry.URLs[0]+"/v1/services/"+demoService+"/instances/"+s.lease.InstanceID, nil)
	if err != nil {
		return "", held, err
	}
	if err := readJSON(d.registry.HTTP, req, &e); err != nil {
		return "", held, err
	}
	if e.Data.Flap != nil {
		held = e.Data.Flap.Until
	}
	return e.State, held, nil
}
