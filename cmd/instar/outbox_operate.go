package main

import (
	"cmp"
	"context"
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
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/streams/outbox"
)

// outboxOperations are what operators do with rows.
func outboxOperations() []*cobra.Command {
	failed := func(use, short, long string) *cobra.Command {
		cmd := &cobra.Command{
			Use: use + " [EVENT-ID...]", Short: short, Long: long, Args: cobra.ArbitraryArgs, RunE: changeRows(use),
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
		Use: "purge", Short: "Remove what was sent longer ago than the retention; a relay does it by itself, too", Args: arguments(), RunE: onStore(purgeRows),
		Long: `Removes rows that were sent longer ago than the retention, and what the inbox remembers for longer than its own, if that was
set (instar outbox init --inbox-retention): how long the stream keeps messages is known to relays only, which do both once an hour.`,
	}
	tail := &cobra.Command{
		Use: "tail", Short: "Watch events being written, and what becomes of them", Args: arguments(), RunE: onStore(tailRows),
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
func onStore(run func(*session, *cobra.Command, *outbox.Store) error) func(*cobra.Command, []string) error {
	return asking(func(s *session, cmd *cobra.Command, _ []string) error {
		dsn, err := outboxDSN(cmd)
		if err != nil {
			return err
		}
		return s.withStore(cmd, dsn, run)
	})
}

func (s *session) withStore(cmd *cobra.Command, dsn string, run func(*session, *cobra.Command, *outbox.Store) error) error {
	schema, _ := cmd.Flags().GetString("schema") // of the group
	store, err := outbox.Open(s.ctx, dsn, schema)
	if err != nil {
		return ofDatabase(err)
	}
	defer store.Pool.Close()
	return ofDatabase(run(s, cmd, store))
}

func (s *session) databaseStatus(cmd *cobra.Command, dsn string) error {
	return s.withStore(cmd, dsn, func(s *session, _ *cobra.Command, store *outbox.Store) error {
		st, err := store.Status(s.ctx)
		if err != nil {
			return err
		}
		one := admin.OutboxSource{Name: databaseName(dsn), Status: shownStatus(&st)}
		raw, err := json.Marshal(one)
		if err != nil {
			return err
		}
		return s.showSources([]admin.OutboxSource{one}, []json.RawMessage{raw})
	})
}

// databaseName is what a DSN calls the database.
func databaseName(dsn string) string {
	if u, err := url.Parse(dsn); err == nil && len(u.Path) > 1 {
		return u.Path[1:]
	}
	return "database"
}

func changeRows(verb string) func(*cobra.Command, []string) error {
	return asking(func(s *session, cmd *cobra.Command, ids []string) error {
		f, err := rowFilter(cmd, ids)
		if err != nil {
			return err
		}
		if yes, _ := cmd.Flags().GetBool("yes"); !yes && (f.All || verb == "discard") {
			if err := s.confirm(verb + " these rows?"); err != nil {
				return err
			}
		}
		n, err := s.changed(cmd, verb, f)
		if err != nil {
			return err
		}
		if !s.format.Human() {
			return s.format.Value(s.out, fmt.Appendf(nil, `{"rows":%d}`, n))
		}
		s.say("%d rows", n)
		return nil
	})
}

// changed asks the database, when one is named, or else the server.
func (s *session) changed(cmd *cobra.Command, verb string, f admin.OutboxFilter) (n int64, err error) {
	if dsn := directDSN(cmd); dsn != "" {
		err = s.withStore(cmd, dsn, func(s *session, _ *cobra.Command, store *outbox.Store) (err error) {
			n, err = changeStore(s.ctx, store, verb, f, operator())
			return err
		})
		return n, err
	}
	source, _ := cmd.Flags().GetString("source") // declared above
	if source == "" {
		if source, err = s.onlySource(); err != nil {
			return 0, err
		}
	}
	body, err := json.Marshal(f)
	if err != nil {
		return 0, err
	}
	resp, err := s.Do(s.ctx, client.Request{Method: http.MethodPost, Path: "/v1/outbox/" + url.PathEscape(source) + "/" + verb, Body: body})
	if err != nil {
		return 0, try(err, "instar outbox status")
	}
	var answer admin.OutboxChanged
	if err := json.Unmarshal(resp.Body, &answer); err != nil {
		return 0, fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	return answer.Rows, nil
}

// onlySource is the one that the server has.
func (s *session) onlySource() (string, error) {
	resp, err := s.Do(s.ctx, client.Request{Path: "/v1/outbox"})
	if err != nil {
		return "", err
	}
	var list admin.OutboxSources
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return "", fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	if len(list.Items) == 0 {
		return "", &exitError{code: exitNotFound, err: errors.New("the server relays no outbox"), try: "instar outbox status"}
	}
	if len(list.Items) != 1 {
		return "", usagef("the server has %d sources: name one with --source", len(list.Items))
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
		return f, usagef("name events, or --aggregate and --event, or --all")
	}
	for _, id := range ids {
		if _, err := uuid.Parse(id); err != nil {
			return f, usagef("%q is no id of an event", id)
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

// changeStore redrives or discards.
func changeStore(ctx context.Context, store *outbox.Store, verb string, f admin.OutboxFilter, actor string) (int64, error) {
	filter := outbox.Filter{AggregateType: f.AggregateType, AggregateID: f.AggregateID, EventType: f.EventType, All: f.All}
	for _, text := range f.IDs {
		id, err := uuid.Parse(text)
		if err != nil {
			return 0, fmt.Errorf("%q is no id of an event", text)
		}
		filter.IDs = append(filter.IDs, id)
	}
	if verb == "discard" {
		return store.Discard(ctx, filter, actor)
	}
	return store.Redrive(ctx, filter, actor)
}

// Redrive makes rows that failed wait for their next try at once.
func (o *outboxes) Redrive(ctx context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.change(ctx, "redrive", source, f, actor)
}

// Discard gives rows that failed up.
func (o *outboxes) Discard(ctx context.Context, source string, f admin.OutboxFilter, actor string) (int64, error) {
	return o.change(ctx, "discard", source, f, actor)
}

func (o *outboxes) change(ctx context.Context, verb, source string, f admin.OutboxFilter, actor string) (int64, error) {
	if reason := o.why(); reason != "" {
		return 0, &admin.OutboxUnavailable{Reason: reason}
	}
	s, ok := o.sources[source]
	if !ok {
		return 0, admin.ErrNoSource
	}
	relayed, err := o.config(s)
	if err != nil {
		return 0, err
	}
	store, err := outbox.Open(ctx, relayed.DSN, relayed.Schema)
	if err != nil {
		return 0, err
	}
	defer store.Pool.Close()
	n, err := changeStore(ctx, store, verb, f, actor)
	if e := ofDatabase(err); errors.As(e, new(*exitError)) {
		o.a.log.Warn("an outbox cannot be changed", "source", source, "error", err)
		return n, &admin.OutboxUnavailable{Reason: "the database of " + source + " does not answer, or has no outbox"}
	}
	o.wake(source)
	return n, err
}

func initOutbox(ctx context.Context, dsn, schema, mode string) error {
	return outbox.Init(ctx, dsn, schema, outbox.Settings{Mode: outbox.Mode(mode)})
}

func purgeRows(s *session, _ *cobra.Command, store *outbox.Store) error {
	p, err := store.Purge(s.ctx, operator())
	if err != nil {
		return err
	}
	inbox, err := store.PurgeInbox(s.ctx, 0) // the stream is not known here
	if err != nil {
		return ofDatabase(err)
	}
	if !s.format.Human() {
		return s.format.Value(s.out, fmt.Appendf(nil, `{"rows":%d,"days":%d,"inbox":%d}`, p.Rows, p.Days, inbox))
	}
	s.say("%d rows and %d days removed, %d handled events forgotten", p.Rows, p.Days, inbox)
	return nil
}

// tailPoll is the time between looks for new rows.
const tailPoll = 300 * time.Millisecond

func tailRows(s *session, cmd *cobra.Command, store *outbox.Store) error {
	lines, _ := cmd.Flags().GetInt("lines") // declared above, both
	follow, _ := cmd.Flags().GetBool("follow")
	cursor := ""
	for {
		n := 1000
		if cursor == "" {
			n = max(lines, 1)
		}
		list, err := store.Tail(s.ctx, cursor, n)
		if errors.Is(err, outbox.ErrNoRows) {
			return try(err, "nats sub 'outbox.>'")
		}
		if err != nil {
			return err
		}
		for i := range list {
			if err := s.showEntry(&list[i]); err != nil {
				return err
			}
			cursor = list[i].Cursor
		}
		if !follow {
			return nil
		}
		if err := rest(s.ctx, tailPoll); err != nil {
			return err // interrupted
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

func (s *session) showEntry(e *outbox.Entry) error {
	if s.format.Human() {
		text := fmt.Sprintf("%s  %-7s  %s/%s  %s  %s", e.CreatedAt.Local().Format("15:04:05.000"), e.State, e.AggregateType, e.AggregateID, e.EventType, e.Payload)
		if e.Error != "" {
			text += "  (" + e.Error + ")"
		}
		_, err := fmt.Fprintln(s.out, output.Line(text))
		return err
	}
	if s.format == output.Name {
		_, err := fmt.Fprintln(s.out, e.ID)
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
	format := s.format
	if format == output.JSON {
		format = output.JSONL // a list that does not end
	}
	return format.Value(s.out, raw)
}
