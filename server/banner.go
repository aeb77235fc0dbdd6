package server

import (
	"cmp"
	"fmt"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
)

// banner tells a person where things are and what to try.
func (a *app) banner() {
	profile := a.profile()
	a.log.Info("ready", "http", a.url, "nats", a.natsURL(), "data", a.cfg.Data, "durability", profile, "node", a.node)
	if a.cfg.Mode != config.Dev {
		return
	}
	var lines, commands string
	for _, hint := range each(a, func(h *Host) []func(string) (string, string) { return h.hints }) {
		line, try := hint(a.url)
		lines, commands = lines+line, commands+try
	}
	console := ""
	if a.api.HasConsole() {
		console = "  Console        " + a.url + "/ui/\n"
	}
	fmt.Fprintf(a.opts.Out, `
Instar is running.
%s  API and docs   %s/docs
  NATS           %s
  Data           %s   (durability %s)
%s
Try, in another terminal and the same directory:
%s
Stop with Ctrl-C: the services go on running, and everything is found again at the next start.
`, console, a.url, a.natsURL(), a.cfg.Data, profile, lines, cmp.Or(commands, fmt.Sprintf("  %s machine ls\n", a.cfg.Program())))
}

// profile is what an acknowledged write survives. Of a server that is not ours only its operator can tell.
func (a *app) profile() string {
	if a.cfg.NATS.Attached() {
		return "attached: as that NATS server is configured (sync_interval)"
	}
	return a.cfg.Durability + ": survives " + embedded.Profile(a.cfg.Durability).Survives()
}

func (a *app) natsURL() string {
	if a.server != nil {
		return cmp.Or(a.server.ClientURL(), "embedded, not listening")
	}
	if name := a.cfg.NATS.Context; name != "" {
		return "context " + name
	}
	return a.cfg.Redacted().NATS.URL
}

// say tells a person something that came later than the banner, or before it.
func (a *app) say(format string, args ...any) {
	if a.cfg.Mode == config.Dev {
		fmt.Fprintf(a.opts.Out, "\n"+format+"\n", args...)
	}
}
