package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// outboxCommand is about the outboxes of databases: some verbs talk to a Postgres, some to a server.
func outboxCommand() *cobra.Command {
	g := clientFlags(group("outbox", "Outboxes: events that applications write into their own Postgres"))
	g.GroupID = groupLook
	g.Long = `An application writes its events into its own Postgres, in the transaction that changes its data; a relay brings each of
them into a NATS stream exactly once, in order per aggregate.

  instar outbox init                   make the tables
  instar outbox status                 how the relays of the server stand
  instar outbox tail                   watch events being written

The database is that of --dsn, of INSTAR_OUTBOX_DSN, or the private one of an instar dev in this directory.`
	fs := g.PersistentFlags()
	fs.String("dsn", "", "Postgres, as a URL; better in INSTAR_OUTBOX_DSN, where other users of the machine do not see it")
	fs.String("schema", "", "schema of the outbox (default public)")
	fs.String("data", "", "data directory of an instar dev, whose private Postgres is meant; INSTAR_DATA (default ./data)")
	g.AddCommand(outboxInitCommand(), outboxStatusCommand(), outboxDSNCommand(), outboxRelayCommand())
	g.AddCommand(outboxOperations()...)
	return g
}

// outboxDSN is the database that is meant.
func outboxDSN(cmd *cobra.Command) (string, error) {
	dsn, _ := cmd.Flags().GetString("dsn") // declared above
	if dsn = cmp.Or(dsn, os.Getenv("INSTAR_OUTBOX_DSN")); dsn != "" {
		return dsn, nil
	}
	data, _ := cmd.Flags().GetString("data")
	path := filepath.Join(cmp.Or(data, os.Getenv("INSTAR_DATA"), "data"), "postgres", "dsn")
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("no database is named, and there is no private one (%s): give a DSN with --dsn, or better in INSTAR_OUTBOX_DSN", path)
	}
	return strings.TrimSpace(string(raw)), nil
}

// ofDatabase tells apart what may be wrong with a database.
func ofDatabase(err error) error {
	var refused *pgconn.PgError
	var away *pgconn.ConnectError
	switch err = outbox.Pooled(err); {
	case err == nil:
		return nil
	case errors.Is(err, outbox.ErrPooler):
		return &exitError{code: exitUsage, err: err}
	case errors.As(err, &away):
		return &exitError{code: exitUnreachable, err: err, try: "psql \"$INSTAR_OUTBOX_DSN\""}
	case errors.As(err, &refused) && refused.Code == "42P01", errors.As(err, &refused) && refused.Code == "3F000":
		return &exitError{code: exitNotFound, err: fmt.Errorf("there is no outbox in this database: %w", err), try: "instar outbox init"}
	}
	return err
}

func outboxInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "Make the tables and functions of an outbox, or bring them up to date", Args: arguments(), RunE: outboxInit,
		Long: `Applies the migrations that are missing, as often as you like, and sets what is given. Mode and shards can be changed only
while no rows wait. It needs the right to create tables in the schema; relays and applications do not.`,
		Example: "  instar outbox init --dsn postgres://owner@db/orders\n  instar outbox init --mode claim --retention 48h",
	}
	fs := cmd.Flags()
	fs.String("mode", "", "log (the default of a new outbox), claim or wal")
	fs.Int("shards", 0, "parts of the aggregates, each with one active relay (default of a new outbox 4)")
	fs.Duration("retention", 0, "how long sent rows are kept (default of a new outbox 168h)")
	fs.Duration("inbox-retention", 0, "how long the inbox remembers what was handled (default twice the age of the stream, at least 336h)")
	fs.Bool("force", false, "with --mode, in mode wal: give up what was appended and no relay has read")
	fs.Int64("max-lag", 0, "rows behind, beyond which appending is refused; -1 removes the limit")
	return cmd
}

func outboxInit(cmd *cobra.Command, _ []string) error {
	dsn, err := outboxDSN(cmd)
	if err != nil {
		return err
	}
	fs := cmd.Flags()
	mode, _ := fs.GetString("mode") // declared above, all of them
	schema, _ := fs.GetString("schema")
	set := outbox.Settings{Mode: outbox.Mode(mode)}
	set.Shards, _ = fs.GetInt("shards")
	set.Retention, _ = fs.GetDuration("retention")
	set.InboxRetention, _ = fs.GetDuration("inbox-retention")
	set.MaxLag, _ = fs.GetInt64("max-lag")
	set.Force, _ = fs.GetBool("force")
	if !slices.Contains([]string{"", string(outbox.Log), string(outbox.Claim), string(outbox.WAL)}, mode) {
		return usagef("--mode: %q is none of log, claim, wal", mode)
	}
	if err := outbox.Init(cmd.Context(), dsn, schema, set); err != nil {
		if errors.Is(err, outbox.ErrRowsWait) {
			return &exitError{code: exitConflict, err: err, try: "instar relay drain"}
		}
		return ofDatabase(err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the outbox is ready in %s\n", config.RedactDSN(dsn))
	return nil
}

func outboxDSNCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dsn", Short: "Print the address of the database that is meant, with its password", Args: arguments(), Example: "  psql \"$(instar outbox dsn)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := outboxDSN(cmd)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), dsn)
			}
			return err
		},
	}
}

// settingsOf fills in what the database itself says of mode and shards; a configuration that says something else would
// relay nothing, or in another order. Retention and the limit of the lag are for the database to keep: they are written there.
func settingsOf(ctx context.Context, c *outbox.Config, given config.OutboxSource) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store, err := outbox.Open(ctx, c.DSN, c.Schema)
	if err != nil {
		return err
	}
	defer store.Pool.Close()
	var mode string
	var shards int
	if err := store.Pool.QueryRow(ctx, "select mode, shards from outbox_settings").Scan(&mode, &shards); err != nil {
		if err := outbox.Pooled(err); errors.Is(err, outbox.ErrPooler) {
			return &relay.PermanentError{Err: err}
		}
		return fmt.Errorf("cannot read the settings of the outbox (was it made, by instar outbox init?): %w", err)
	}
	if given.Mode != "" && given.Mode != mode || given.Shards != 0 && given.Shards != shards {
		return &relay.PermanentError{Err: fmt.Errorf("source %s is configured with mode %s and %d shards, its database has mode %s and %d: change one of them (instar outbox init --mode --shards)",
			c.Name, cmp.Or(given.Mode, mode), cmp.Or(given.Shards, shards), mode, shards)}
	}
	if _, err := store.Pool.Exec(ctx, `update outbox_settings set retention = case when $1::float8 > 0 then make_interval(secs => $1) else retention end,
			max_lag = case when $2::bigint > 0 then $2 else max_lag end,
			inbox_retention = case when $3::float8 > 0 then make_interval(secs => $3) else inbox_retention end, updated_at = now()
		where $1 > 0 and retention <> make_interval(secs => $1) or $2 > 0 and max_lag <> $2 or $3 > 0 and inbox_retention is distinct from make_interval(secs => $3)`,
		given.Retention.Seconds(), given.MaxLag, given.Inbox.Seconds()); err != nil {
		return fmt.Errorf("cannot set retention and maxLag of the outbox: %w", err)
	}
	c.Mode, c.Shards = outbox.Mode(mode), shards
	return nil
}

func outboxStatusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status [SOURCE]", Short: "See how outboxes stand: those of the server, or with --dsn that of a database", Args: between(0, "SOURCE"), RunE: outboxStatus,
		Example: "  instar outbox status\n  instar outbox status orders -o json\n  instar outbox status --dsn postgres://db/orders",
	}
	return cmd
}

func outboxStatus(cmd *cobra.Command, args []string) error {
	s, err := open(cmd)
	if err != nil {
		return err
	}
	if dsn := directDSN(cmd); dsn != "" {
		return s.databaseStatus(cmd, dsn)
	}
	resp, err := s.Do(s.ctx, client.Request{Path: "/v1/outbox"})
	if err != nil {
		return err
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	var items []json.RawMessage
	var sources []admin.OutboxSource
	for _, raw := range list.Items {
		var one admin.OutboxSource
		if err := json.Unmarshal(raw, &one); err != nil {
			return fmt.Errorf("the server's answer is not as expected: %w", err)
		}
		if len(args) == 0 || one.Name == args[0] {
			items, sources = append(items, raw), append(sources, one)
		}
	}
	if len(args) > 0 && len(items) == 0 {
		return &exitError{code: exitNotFound, err: fmt.Errorf("there is no source %s", args[0]), try: "instar outbox status"}
	}
	return s.showSources(sources, items)
}

// showSources writes sources in the format that was asked for.
func (s *session) showSources(sources []admin.OutboxSource, raws []json.RawMessage) error {
	switch {
	case s.format == output.Name:
		for _, one := range sources {
			fmt.Fprintln(s.out, one.Name)
		}
		return nil
	case !s.format.Human():
		return s.format.List(s.out, raws)
	}
	if len(sources) == 0 {
		s.say("The server relays no outbox: name a database with its --outbox-dsn, or under outbox.sources.")
	}
	g := output.Grid{Titles: []string{"SOURCE", "STATE", "MODE", "LAG", "OLDEST", "RATE", "FAILED", "DEAD", "PARKED", "PROBLEM"}}
	for _, one := range sources {
		st := one.Status
		if st == nil {
			g.Add(one.Name, one.State, "", "", "", "", "", "", "", one.Problem)
			continue
		}
		g.Add(one.Name, one.State, st.Mode, fmt.Sprint(st.Lag), (time.Duration(st.Oldest * float64(time.Second))).Round(100*time.Millisecond).String(), fmt.Sprintf("%.0f/s", st.Rate),
			fmt.Sprint(st.Rows[outbox.StateFailed]), fmt.Sprint(st.Rows[outbox.StateDead]), fmt.Sprint(len(st.Parked)), st.Problem)
	}
	if err := g.Write(s.out); err != nil {
		return err
	}
	return s.showParked(sources)
}

func (s *session) showParked(sources []admin.OutboxSource) error {
	g := output.Grid{Titles: []string{"SOURCE", "AGGREGATE", "EVENT", "STATE", "TRIES", "WAITING", "ERROR"}}
	for _, one := range sources {
		if one.Status == nil {
			continue
		}
		for _, p := range one.Status.Parked {
			g.Add(one.Name, p.AggregateType+"/"+p.AggregateID, p.EventID, p.State, fmt.Sprint(p.Attempts), fmt.Sprint(p.Waiting), p.Error)
		}
	}
	if len(g.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(s.out)
	return g.Write(s.out)
}
