// Package outboxes is the command outbox: it makes, shows and mends outboxes, of a server or of a database, and relays one alone.
package outboxes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/relays"
	"github.com/bcc94042/instar/streams/outbox"
)

// Command is about the outboxes of databases: some verbs talk to a Postgres, some to a server.
func Command(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("outbox", "Outboxes: events that applications write in their own Postgres transactions"))
	g.GroupID = command.GroupLook
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
	g.AddCommand(outboxInitCommand(), outboxStatusCommand(p), outboxDSNCommand(), outboxRelayCommand())
	g.AddCommand(outboxOperations(p)...)
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
		return "", command.Usagef("no database is named, and there is no private one (%s): give a DSN with --dsn, or better in INSTAR_OUTBOX_DSN", path)
	}
	return strings.TrimSpace(string(raw)), nil
}

// ofDatabase tells apart what may be wrong with a database.
func ofDatabase(err error) error {
	switch err = outbox.Pooled(err); relays.FaultOf(err) {
	case relays.Pooler:
		return &command.Error{Code: command.ExitUsage, Err: err}
	case relays.Away:
		return &command.Error{Code: command.ExitUnreachable, Err: err, Try: "psql \"$INSTAR_OUTBOX_DSN\""}
	case relays.NoOutbox:
		return &command.Error{Code: command.ExitNotFound, Err: fmt.Errorf("there is no outbox in this database: %w", err), Try: "instar outbox init"}
	}
	return err
}

func outboxInitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "Create the tables and functions of an outbox, or migrate them", Args: command.Arguments(), RunE: outboxInit,
		Long: `Applies the migrations that are missing, as often as you like, and sets what is given. Mode and shards can be changed only
while no rows wait. It needs the right to create tables in the schema; relays and applications do not.`,
		Example: "  instar outbox init --dsn postgres://owner@db/orders\n  instar outbox init --mode claim --retention 48h",
	}
	fs := cmd.Flags()
	fs.String("mode", "", "log (the default of a new outbox) or claim")
	fs.Int("shards", 0, "parts of the aggregates, each with one active relay (default of a new outbox 4)")
	fs.Duration("retention", 0, "how long sent rows are kept (default of a new outbox 168h)")
	fs.Duration("inbox-retention", 0, "how long the inbox remembers what was handled (default twice the age of the stream, at least 336h)")
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
	if !slices.Contains([]string{"", string(outbox.Log), string(outbox.Claim)}, mode) {
		return command.Usagef("--mode: %q is neither log nor claim", mode)
	}
	if err := outbox.Init(cmd.Context(), dsn, schema, set); err != nil {
		if errors.Is(err, outbox.ErrRowsWait) {
			return &command.Error{Code: command.ExitConflict, Err: err, Try: "instar relay drain"}
		}
		return ofDatabase(err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the outbox is ready in %s\n", config.RedactDSN(dsn))
	return nil
}

func outboxDSNCommand() *cobra.Command {
	return &cobra.Command{
		Use: "dsn", Short: "Print the DSN of the database, with its password", Args: command.Arguments(), Example: "  psql \"$(instar outbox dsn)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			dsn, err := outboxDSN(cmd)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), dsn)
			}
			return err
		},
	}
}

func outboxStatusCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status [SOURCE]", Short: "Show the status of the server's outboxes, or with --dsn of one database", Args: command.Between(0, "SOURCE"), RunE: p.Asking(outboxStatus),
		Example: "  instar outbox status\n  instar outbox status orders -o json\n  instar outbox status --dsn postgres://db/orders",
	}
	return cmd
}

func outboxStatus(s *command.Session, cmd *cobra.Command, args []string) error {
	if dsn := directDSN(cmd); dsn != "" {
		return databaseStatus(s, cmd, dsn)
	}
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/outbox"})
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
		return &command.Error{Code: command.ExitNotFound, Err: fmt.Errorf("there is no source %s", args[0]), Try: "instar outbox status"}
	}
	return showSources(s, sources, items)
}

// showSources writes sources in the format that was asked for.
func showSources(s *command.Session, sources []admin.OutboxSource, raws []json.RawMessage) error {
	switch {
	case s.Format == output.Name:
		for _, one := range sources {
			fmt.Fprintln(s.Out, one.Name)
		}
		return nil
	case !s.Format.Human():
		return s.Format.List(s.Out, raws)
	}
	if len(sources) == 0 {
		s.Say("The server relays no outbox: configure one with --outbox-dsn or outbox.sources.")
	}
	g := output.Grid{Titles: []string{"SOURCE", "STATE", "MODE", "LAG", "OLDEST", "RATE", "FAILED", "DEAD", "PARKED", "PROBLEM"}}
	for _, one := range sources {
		st := one.Status
		if st == nil {
			g.Add(one.Name, one.State, "", "", "", "", "", "", "", one.Problem)
			continue
		}
		g.Add(one.Name, one.State, st.Mode, fmt.Sprint(st.Lag), time.Duration(st.Oldest*float64(time.Second)).Round(100*time.Millisecond).String(), fmt.Sprintf("%.0f/s", st.Rate),
			fmt.Sprint(st.Rows[outbox.StateFailed]), fmt.Sprint(st.Rows[outbox.StateDead]), fmt.Sprint(len(st.Parked)), st.Problem)
	}
	if err := g.Write(s.Out); err != nil {
		return err
	}
	return showParked(s, sources)
}

func showParked(s *command.Session, sources []admin.OutboxSource) error {
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
	fmt.Fprintln(s.Out)
	return g.Write(s.Out)
}
