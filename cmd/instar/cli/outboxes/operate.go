package outboxes

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/server/relays"
	"github.com/bcc94042/instar/streams/outbox"
)

// outboxOperations are what operators do with rows.
func outboxOperations(p *command.Program) []*cobra.Command {
	failed := func(use, short, long string) *cobra.Command {
		cmd := &cobra.Command{
			Use: use + " [EVENT-ID...]", Short: short, Long: long, Args: cobra.ArbitraryArgs, RunE: changeRows(p, use),
			Example: "  instar outbox " + use + " --aggregate order/4711\n  instar outbox " + use + " --all --source orders",
		}
		fs := cmd.Flags()
		fs.String("aggregate", "", "of this aggregate, TYPE/ID, or of all of a TYPE")
		fs.String("event", "", "events of this type")
		fs.Bool("all", false, "all rows that failed")
		fs.String("source", "", "source of the server (default: the only one)")
		fs.BoolP("yes", "y", false, "do not ask")
		return cmd
	}
	purge := &cobra.Command{
		Use: "purge", Short: "Remove sent rows older than the retention; relays do it by themselves, too", Args: command.Arguments(), RunE: onStore(p, purgeRows),
		Long: `Removes rows that were sent longer ago than the retention, and what the inbox remembers for longer than its own, if that was
set (instar outbox init --inbox-retention): how long the stream keeps messages is known to relays only, which do both once an hour.`,
	}
	tail := &cobra.Command{
		Use: "tail", Short: "Follow events and their delivery", Args: command.Arguments(), RunE: onStore(p, tailRows),
		Example: "  instar outbox tail\n  instar outbox tail -l 100 --follow=false -o jsonl",
	}
	tail.Flags().IntP("lines", "l", 10, "begin with so many of the newest")
	tail.Flags().BoolP("follow", "f", true, "go on with what comes")
	return []*cobra.Command{
		failed("redrive", "Let rows that failed be tried again at once", "Rows that are FAILED or DEAD become NEW. It is audited in outbox_audit. Without a DSN the server does it."),
		failed("discard", "Give rows that failed up: what waits behind them goes on", "Rows that are FAILED or DEAD are never published. Their ids stay in outbox_audit. Without a DSN the server does it."),
		purge, tail,
	}
}

// directDSN is the database that is to be asked without a server: only when one is named.
func directDSN(cmd *cobra.Command) string {
	dsn, _ := cmd.Flags().GetString("dsn") // of the group
	return cmp.Or(dsn, os.Getenv("INSTAR_OUTBOX_DSN"))
}

// onStore runs a command on the database that is meant.
func onStore(p *command.Program, run func(*command.Session, *cobra.Command, *outbox.Store) error) func(*cobra.Command, []string) error {
	return p.Asking(func(s *command.Session, cmd *cobra.Command, _ []string) error {
		dsn, err := outboxDSN(cmd)
		if err != nil {
			return err
		}
		return withStore(s, cmd, dsn, run)
	})
}

func withStore(s *command.Session, cmd *cobra.Command, dsn string, run func(*command.Session, *cobra.Command, *outbox.Store) error) error {
	schema, _ := cmd.Flags().GetString("schema") // of the group
	store, err := outbox.Open(s.Ctx, dsn, schema)
	if err != nil {
		return ofDatabase(err)
	}
	defer store.Pool.Close()
	if err := store.CheckSchema(s.Ctx); errors.Is(err, outbox.ErrSchema) {
		return err
	}
	return ofDatabase(run(s, cmd, store))
}

func databaseStatus(s *command.Session, cmd *cobra.Command, dsn string) error {
	return withStore(s, cmd, dsn, func(s *command.Session, _ *cobra.Command, store *outbox.Store) error {
		st, err := store.Status(s.Ctx)
		if err != nil {
			return err
		}
		one := admin.OutboxSource{Name: databaseName(dsn), Status: relays.Shown(&st)}
		raw, err := json.Marshal(one)
		if err != nil {
			return err
		}
		return showSources(s, []admin.OutboxSource{one}, []json.RawMessage{raw})
	})
}

// databaseName is what a DSN calls the database.
func databaseName(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && len(u.Path) > 1 {
		return u.Path[1:]
	}
	return "database"
}

func changeRows(p *command.Program, verb string) func(*cobra.Command, []string) error {
	return p.Asking(func(s *command.Session, cmd *cobra.Command, ids []string) error {
		f, err := rowFilter(cmd, ids)
		if err != nil {
			return err
		}
		if yes, _ := cmd.Flags().GetBool("yes"); !yes && (f.All || verb == "discard") {
			if err := s.Confirm(verb + " these rows?"); err != nil {
				return err
			}
		}
		n, err := changed(s, cmd, verb, f)
		if err != nil {
			return err
		}
		if !s.Format.Human() {
			return s.Format.Value(s.Out, fmt.Appendf(nil, `{"rows":%d}`, n))
		}
		s.Say("%d rows", n)
		return nil
	})
}

// changed asks the database, when one is named, or else the server.
func changed(s *command.Session, cmd *cobra.Command, verb string, f admin.OutboxFilter) (n int64, err error) {
	if dsn := directDSN(cmd); dsn != "" {
		err = withStore(s, cmd, dsn, func(s *command.Session, _ *cobra.Command, store *outbox.Store) (err error) {
			n, err = relays.Change(s.Ctx, store, verb, f, operator())
			return err
		})
		return n, err
	}
	source, _ := cmd.Flags().GetString("source") // declared above
	if source == "" {
		if source, err = onlySource(s); err != nil {
			return 0, err
		}
	}
	body, err := json.Marshal(f)
	if err != nil {
		return 0, err
	}
	resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: "/v1/outbox/" + url.PathEscape(source) + "/" + verb, Body: body})
	if err != nil {
		return 0, command.Try(err, "instar outbox status")
	}
	var answer admin.OutboxChanged
	if err := json.Unmarshal(resp.Body, &answer); err != nil {
		return 0, fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	return answer.Rows, nil
}

// onlySource is the one that the server has.
func onlySource(s *command.Session) (string, error) {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/outbox"})
	if err != nil {
		return "", err
	}
	var list admin.OutboxSources
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return "", fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	if len(list.Items) == 0 {
		return "", &command.Error{Code: command.ExitNotFound, Err: errors.New("the server relays no outbox"), Try: "instar outbox status"}
	}
	if len(list.Items) != 1 {
		return "", command.Usagef("the server has %d sources: name one with --source", len(list.Items))
	}
	return list.Items[0].Name, nil
}

// rowFilter reads what rows are meant.
func rowFilter(cmd *cobra.Command, ids []string) (admin.OutboxFilter, error) {
	f := admin.OutboxFilter{IDs: ids}
	aggregate, _ := cmd.Flags().GetString("aggregate") // declared above, all of them
	f.AggregateType, f.AggregateID, _ = strings.Cut(aggregate, "/")
	f.EventType, _ = cmd.Flags().GetString("event")
	f.All, _ = cmd.Flags().GetBool("all")
	fields := f.AggregateType != "" || f.EventType != ""
	if f.All == (len(ids) > 0 || fields) || len(ids) > 0 && fields {
		return f, command.Usagef("name events, or --aggregate and --event, or --all")
	}
	for _, id := range ids {
		if _, err := uuid.Parse(id); err != nil {
			return f, command.Usagef("%q is no id of an event", id)
		}
	}
	return f, nil
}

// operator is who does it, for the audit.
func operator() string {
	if u, err := user.Current(); err == nil {
		return "cli:" + u.Username
	}
	return "cli"
}

func purgeRows(s *command.Session, _ *cobra.Command, store *outbox.Store) error {
	p, err := store.Purge(s.Ctx, operator())
	if err != nil {
		return err
	}
	inbox, err := store.PurgeInbox(s.Ctx, 0) // the stream is not known here
	if err != nil {
		return ofDatabase(err)
	}
	if !s.Format.Human() {
		return s.Format.Value(s.Out, fmt.Appendf(nil, `{"rows":%d,"days":%d,"inbox":%d}`, p.Rows, p.Days, inbox))
	}
	s.Say("%d rows and %d days removed, %d handled events forgotten", p.Rows, p.Days, inbox)
	return nil
}

// tailPoll is the time between looks for new rows.
const tailPoll = 300 * time.Millisecond

func tailRows(s *command.Session, cmd *cobra.Command, store *outbox.Store) error {
	lines, _ := cmd.Flags().GetInt("lines") // declared above, both
	follow, _ := cmd.Flags().GetBool("follow")
	cursor := ""
	for {
		n := 1000
		if cursor == "" {
			n = max(lines, 1)
		}
		list, err := store.Tail(s.Ctx, cursor, n)
		if err != nil {
			return err
		}
		for i := range list {
			if err := showEntry(s, &list[i]); err != nil {
				return err
			}
			cursor = list[i].Cursor
		}
		if !follow {
			return nil
		}
		select {
		case <-s.Ctx.Done():
			return s.Ctx.Err() // interrupted
		case <-time.After(tailPoll):
		}
	}
}

// entry is a row as it is printed for programs.
type entry struct {
	ID            string            `json:"id"`
	Seq           int64             `json:"seq"`
	Time          time.Time         `json:"time"`
	AggregateType string            `json:"aggregateType"`
	AggregateID   string            `json:"aggregateId"`
	EventType     string            `json:"eventType"`
	State         string            `json:"state"`
	Attempts      int               `json:"attempts,omitempty"`
	Error         string            `json:"error,omitempty"`
	ContentType   string            `json:"contentType"`
	Headers       map[string]string `json:"headers,omitempty"`
	Payload       any               `json:"payload"`
}

func showEntry(s *command.Session, e *outbox.Entry) error {
	if s.Format.Human() {
		text := fmt.Sprintf("%s  %-7s  %s/%s  %s  %s", e.CreatedAt.Local().Format("15:04:05.000"), e.State, e.AggregateType, e.AggregateID, e.EventType, e.Payload)
		if e.Error != "" {
			text += "  (" + e.Error + ")"
		}
		_, err := fmt.Fprintln(s.Out, output.Line(text))
		return err
	}
	if s.Format == output.Name {
		_, err := fmt.Fprintln(s.Out, e.ID)
		return err
	}
	shown := entry{e.ID.String(), e.Seq, e.CreatedAt, e.AggregateType, e.AggregateID, e.EventType, e.State, e.Attempts, e.Error, e.ContentType, e.Headers, string(e.Payload)}
	if json.Valid(e.Payload) {
		shown.Payload = json.RawMessage(e.Payload)
	}
	raw, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	format := s.Format
	if format == output.JSON {
		format = output.JSONL // a list that does not end
	}
	return format.Value(s.Out, raw)
}
