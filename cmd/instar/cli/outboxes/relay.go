package outboxes

import (
	"cmp"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/natscli"
	"github.com/bcc94042/instar/server/relays"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// outboxRelayCommand relays one database without a server: for applications that want nothing else.
func outboxRelayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "relay", Short: "Relay one database into NATS, without a server", Args: command.Arguments(), RunE: outboxRelay,
		Long: `Runs a relay alone, attached to any NATS server from 2.14 on with JetStream. Several of them, each with a --node of its own,
may serve one database: each shard has one active relay at a time. It ends at the first interrupt, after what is under way.`,
		Example: "  INSTAR_OUTBOX_DSN=postgres://relay@db/orders instar outbox relay --nats-url nats://nats:4222 --source orders",
	}
	fs := cmd.Flags()
	fs.String("nats-url", "nats://127.0.0.1:4222", "NATS server; INSTAR_NATS_URL")
	fs.String("nats-context", "", "context of the nats CLI, instead of --nats-url and what belongs to it; INSTAR_NATS_CONTEXT")
	fs.String("nats-creds", "", "credentials file; INSTAR_NATS_CREDS")
	fs.String("nats-ca", "", "file of the certificate authority; INSTAR_NATS_CA")
	fs.String("nats-prefix", streams.DefaultPrefix, "first token of the subjects of wake-ups and leases")
	fs.String("source", "main", "name of the source: part of positions in the stream, of leases and of wake-ups")
	fs.String("node", "", "name of this relay (default: the host's)")
	fs.String("mode", "", "claim or log (default: what the database says)")
	fs.String("stream", "", "stream (default OUTBOX); it is created when it is missing")
	fs.String("prefix", "", "first token of the events' subjects (default outbox)")
	fs.Int("shards", 0, "parts of the aggregates (default: what the database says)")
	fs.Int("batch", 0, "rows at a time (default 1000, of claim 100)")
	fs.Duration("lease", 0, "of claimed rows; a third of it of a shard, which is how long others wait for a relay that is gone (default 30s)")
	fs.Duration("poll", 0, "wait between looks when nothing wakes it (default 1s)")
	fs.Int("attempts", 0, "tries before a row is DEAD (default 10)")
	fs.Duration("base-backoff", 0, "the n-th wait is this times 2^(n-1) (default 1s)")
	fs.Duration("max-backoff", 0, "longest wait between tries (default 5m)")
	fs.Duration("retention", 0, "how long sent rows are kept (default: what the database says)")
	fs.Duration("inbox-retention", 0, "how long the inbox remembers what was handled (default: what the database says)")
	fs.Int64("max-lag", 0, "rows behind, beyond which appending is refused (default: what the database says)")
	fs.StringSlice("types", nil, "event types that there are, order.> for all below one (default: all)")
	fs.String("unknown-types", "", "what becomes of others: park or publish (default park)")
	fs.String("cloudevents", "", "binary or structured (default binary)")
	fs.Duration("max-age", 0, "how long a stream that is created keeps its messages (default 168h)")
	fs.String("http", "", "address for /metrics, /livez and /readyz, such as 127.0.0.1:9100 (default: none)")
	fs.Int("replicas", 1, "replicas of a stream that is created")
	fs.Bool("fsync", false, "the NATS server syncs every write (sync_interval: always): publish in atomic batches")
	fs.String("log-level", "info", "debug, info, warn or error")
	return cmd
}

func outboxRelay(cmd *cobra.Command, _ []string) error {
	text := func(flag, env string) string {
		v, _ := cmd.Flags().GetString(flag) // declared above
		if env != "" && !cmd.Flags().Changed(flag) {
			v = cmp.Or(os.Getenv(env), v)
		}
		return v
	}
	number := func(flag string) int {
		v, _ := cmd.Flags().GetInt(flag) // declared above
		return v
	}
	dsn, err := outboxDSN(cmd)
	if err != nil {
		return err
	}
	schema, _ := cmd.Flags().GetString("schema") // of the group
	s := config.OutboxSource{
		Name: text("source", ""), DSN: dsn, Schema: schema, Mode: text("mode", ""), Stream: text("stream", ""), Prefix: text("prefix", ""),
		Shards: number("shards"), Batch: number("batch"), Attempts: number("attempts"), Unknown: text("unknown-types", ""), CloudEvents: text("cloudevents", ""),
	}
	s.Types, _ = cmd.Flags().GetStringSlice("types") // declared above, all of them
	s.MaxLag, _ = cmd.Flags().GetInt64("max-lag")
	for flag, d := range map[string]*time.Duration{
		"lease": &s.Lease, "poll": &s.Poll, "base-backoff": &s.BaseBackoff, "max-backoff": &s.MaxBackoff, "retention": &s.Retention, "inbox-retention": &s.Inbox,
	} {
		*d, _ = cmd.Flags().GetDuration(flag)
	}
	maxAge, _ := cmd.Flags().GetDuration("max-age")
	if err := s.Validate(); err != nil {
		return command.Usagef("--%w", err)
	}
	log, err := server.NewLog(config.Log{Level: text("log-level", ""), Format: "text"})
	if err != nil {
		return command.Usage(err)
	}
	nc, err := streams.Connect(streams.ConnectOptions{Dial: natscli.Connect(text("nats-context", "INSTAR_NATS_CONTEXT")), URL: text("nats-url", "INSTAR_NATS_URL"), Creds: text("nats-creds", "INSTAR_NATS_CREDS"), CA: text("nats-ca", "INSTAR_NATS_CA"), Name: "outbox relay " + s.Name, Log: log})
	if err != nil {
		return &command.Error{Code: command.ExitUnreachable, Err: err}
	}
	defer nc.Close()
	js, err := streams.JetStream(nc)
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // a relay without a name is still one
	fsync, _ := cmd.Flags().GetBool("fsync")
	err = (&relays.Alone{
		Source: s, NC: nc, JS: js, Names: streams.Names{Prefix: text("nats-prefix", "")}, Replicas: number("replicas"), MaxAge: maxAge, Fsync: fsync,
		Node: cmp.Or(text("node", ""), host, "relay"), HTTP: text("http", ""), Log: log,
	}).Run(cmd.Context())
	var permanent *relay.PermanentError
	if errors.As(err, &permanent) {
		return &command.Error{Code: command.ExitFailed, Err: err}
	}
	return ofDatabase(err)
}
