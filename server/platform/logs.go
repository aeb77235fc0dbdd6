package platform

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api"
	apilogs "github.com/bcc94042/instar/api/logs"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/wait"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/logs"
	"github.com/bcc94042/instar/streams"
)

// tell keeps what the releases of sessions write in the stream of logs, and lets clients read it. A line that is lost is lost: it is in the file.
func tell(ctx context.Context, h *server.Host, nc *nats.Conn, js jetstream.JetStream, apps app.Logging) {
	h.Go(ctx, "the logs of instances", func(ctx context.Context) error {
		for try := 0; logs.Ensure(ctx, js, h.Deps.Names, h.Replicas) != nil && wait.Backoff(ctx, try); try++ {
		}
		apps.Lines(ctx, func(l app.Line) {
			key, ours := strings.CutPrefix(l.Owner, machine.Machine.Name+"/")
			if !ours {
				return
			}
			m := &nats.Msg{Subject: h.Deps.Names.Log(machine.Machine.Name, key), Data: []byte(l.Text), Header: nats.Header{streams.HeaderAttempt: {l.Release}}}
			if err := nc.PublishMsg(m); err != nil {
				h.Log.Debug("a log line is lost", "release", l.Release, "error", err)
			}
		})
		return nil
	})
	h.API(func(o *api.Options) {
		o.More = append(o.More, func(p api.Parts) func(*rest.Router) []*rest.Route {
			r := &apilogs.Reader{Rest: p.Rest, JS: p.JS, Names: h.Deps.Names}
			return func(*rest.Router) []*rest.Route {
				return []*rest.Route{r.Route(machine.Machine, "/v1/tenants/{tenant}/"+machine.Machine.Plural, p.Store)}
			}
		})
	})
}
