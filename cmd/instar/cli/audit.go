package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

const auditPath = "/v1/audit"

// auditCommand is about the records of what was done with tenants.
func auditCommand(p *command.Program) *cobra.Command {
	g := command.ClientFlags(&cobra.Command{
		Use: "audit", Short: "The audit of tenants: who has changed what, and when", Args: command.Arguments(), RunE: p.Asking(auditList), GroupID: command.GroupLook,
		Example: "  instar audit --tenant acme --since 2026-01-01T00:00:00Z\n  instar audit export audit.jsonl\n  instar audit verify audit.jsonl",
	})
	fs := g.Flags()
	for _, f := range [][2]string{
		{"tenant", "only of this tenant"}, {"actor", "only of this actor, by its id or type (user, system, scheduler)"}, {"resource", "only about this resource, by its type or id"},
		{"class", "only of this class (" + strings.Join(streams.Classes, ", ") + ")"}, {"since", "only what was recorded then or later (RFC 3339)"}, {"until", "only what was recorded before"},
	} {
		fs.String(f[0], "", f[1])
	}
	fs.Int("limit", 0, "at most so many (default: all)")
	g.AddCommand(&cobra.Command{
		Use: "export FILE", Short: "Append the records that the file lacks, as JSON lines, when they follow those that it has", Args: command.Arguments("FILE"), RunE: p.Asking(auditExport),
		Long: "It appends the records that the file lacks, as JSON lines. It fails, and appends nothing, where the records of the server do not follow those of the file: some were removed or changed since, or are older than records become. So run it from time to time, before records have their age.",
	}, &cobra.Command{
		Use: "verify [FILE]", Short: "Check that no record was changed, removed or put in another one's place", Args: cobra.MaximumNArgs(1), RunE: p.Asking(auditVerify),
		Long: "It checks the chains of the server. With a file of export it checks that, too, and that the chains of the server are the same and go on behind it: who has written the chains of the server anew cannot have changed the file.",
	})
	return g
}

// record is one line of the audit.
type record struct {
	audit.Record
	raw json.RawMessage
}

func readRecord(raw json.RawMessage) (record, error) {
	r := record{raw: raw}
	_ = json.Unmarshal(raw, &r.Record) // what cannot be read is shown as far as it can, and verify tells of it
	return r, nil
}

func auditList(s *command.Session, cmd *cobra.Command, _ []string) error {
	query := url.Values{}
	for _, name := range []string{"tenant", "actor", "resource", "class", "since", "until"} {
		if v, _ := cmd.Flags().GetString(name); v != "" { // declared above
			query.Set(name, v)
		}
	}
	limit, _ := cmd.Flags().GetInt("limit")
	all, err := command.Pages(s, auditPath, query, limit, readRecord)
	if err != nil {
		return err
	}
	if s.Format.Human() {
		g := output.Grid{Titles: []string{"TIME", "TENANT", "SESSION", "EVENT", "STATE", "RESOURCE", "ACTOR", "RESULT"}}
		for _, r := range all {
			state, resource, result := "", "", "ok"
			if r.Change != nil {
				state = r.Change.From + " → " + r.Change.To
			}
			if r.Resource != nil {
				resource = r.Resource.Action + " " + r.Resource.Type + " " + r.Resource.ID
			}
			if e := r.Result.Error; e != nil {
				result = output.Line(strings.TrimSuffix(e.Code+": "+e.Message, ": "))
			}
			g.Add(r.Timestamp.Local().Format(time.DateTime), r.Target.TenantID, r.Target.SessionID, r.EventType, state, resource, r.Actor.Type+" "+r.Actor.ID, result)
		}
		return g.Write(s.Out)
	}
	var raws []json.RawMessage
	for _, r := range all {
		if s.Format == output.Name {
			fmt.Fprintln(s.Out, r.EventID)
		}
		raws = append(raws, r.raw)
	}
	if s.Format == output.Name {
		return nil
	}
	return s.Format.List(s.Out, raws)
}

// chains checks those of all classes.
type chains struct {
	by  map[string]*audit.Chain
	now time.Time
}

func newChains() *chains {
	c := &chains{by: map[string]*audit.Chain{}, now: time.Now()}
	for _, class := range streams.Classes {
		c.by[class] = &audit.Chain{Class: class}
	}
	return c
}

// next checks a record. known is one that is there already, and the same.
func (c *chains) next(line []byte) (known bool, err error) {
	var r audit.Record
	_ = json.Unmarshal(line, &r) // its class; what cannot be read has none
	chain := c.by[r.Class]
	if chain == nil {
		return false, &audit.BreakError{Class: r.Class, Sequence: r.Sequence, Why: "there is no such class, or it cannot be read"}
	}
	if chain.Begun && r.Sequence == chain.Head.Sequence { // the last one that a file has
		if r, err = audit.Parse(line); err == nil && r.Hash == chain.Head.Hash {
			return true, nil
		}
		return false, &audit.BreakError{Class: r.Class, Sequence: r.Sequence, Why: "the server has another one than the file"}
	}
	_, err = chain.Next(line, c.now)
	return false, err
}

// file reads the records of an export; one that is not there has none.
func (c *chains) file(path string, mayLack bool) error {
	f, err := os.Open(path)
	if mayLack && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: line %d is not complete: %w; remove it", path, n, err)
		}
		known, err := c.next(line[:len(line)-1])
		if err == nil && known {
			err = errors.New("the record is there twice")
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
	}
}

// server reads the records of the server behind those that were checked, and hands over each. The last one that was checked is read again, as it is to be the same.
func (c *chains) server(s *command.Session, take func(json.RawMessage) error) error {
	var after []string
	had := map[string]uint64{}
	for _, class := range streams.Classes {
		h := c.by[class].Head
		if had[class] = h.Sequence; h.Sequence > 1 {
			after = append(after, class+"-"+strconv.FormatUint(h.Sequence-1, 10))
		}
	}
	query := url.Values{"limit": {"500"}, "after": {strings.Join(after, ".")}}
	for {
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"nextCursor"`
			Ends       map[string]struct {
				Sequence uint64    `json:"sequence"`
				At       time.Time `json:"at"`
			} `json:"ends"`
		}
		if err := s.JSON(s.Ctx, client.Request{Path: auditPath, Query: query}, &page); err != nil {
			return err
		}
		for _, line := range page.Items {
			known, err := c.next(line)
			if err != nil {
				return err
			}
			if !known && take != nil {
				if err := take(line); err != nil {
					return err
				}
			}
		}
		if query.Set("after", page.NextCursor); page.NextCursor != "" {
			continue
		}
		for _, class := range streams.Classes {
			end := page.Ends[class]
			if had[class] > end.Sequence {
				return &audit.BreakError{Class: class, Sequence: end.Sequence + 1, Why: fmt.Sprintf("the server has never had it, and the file has records up to %d: the chain of the server begins anew, or it is another server", had[class])}
			}
			if err := c.by[class].End(end.Sequence, end.At, c.now); err != nil {
				return err
			}
		}
		return nil
	}
}

// told says what was checked.
func (c *chains) told(s *command.Session) {
	for _, class := range streams.Classes {
		switch chain := c.by[class]; {
		case !chain.Begun:
			s.Say("%-8s  no records", class)
		default:
			s.Say("%-8s  records %d to %d are as they were written; the hash of the last one is %s", class, chain.First, chain.Head.Sequence, chain.Head.Hash)
		}
	}
}

func auditVerify(s *command.Session, _ *cobra.Command, args []string) error {
	c := newChains()
	if len(args) > 0 {
		if err := c.file(args[0], false); err != nil {
			return err
		}
	}
	if err := c.server(s, nil); err != nil {
		return broken(err)
	}
	c.told(s)
	return nil
}

func auditExport(s *command.Session, _ *cobra.Command, args []string) error {
	c := newChains()
	if err := c.file(args[0], true); err != nil {
		return err
	}
	var lines []json.RawMessage
	if err := c.server(s, func(line json.RawMessage) error { lines = append(lines, line); return nil }); err != nil {
		return broken(err)
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	for _, line := range lines {
		_, _ = out.Write(append(line, '\n')) // Flush has the error
	}
	if err := errors.Join(out.Flush(), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("%s may end in the middle of a line: %w", args[0], err)
	}
	s.Say("%d records were appended to %s", len(lines), args[0])
	c.told(s)
	return nil
}

// broken gives a chain that is not as it was written the code of what ended in a failed state.
func broken(err error) error {
	var b *audit.BreakError
	if errors.As(err, &b) {
		return &command.Error{Code: command.ExitFailed, Err: err}
	}
	return err
}
