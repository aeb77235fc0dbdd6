// Package audits has the command about the audit of tenants: its records, an export of them, and the check of both.
package audits

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

const path = "/v1/audit"

// Types of resources.
const Types = "database, replication, fence, runtime, slug, instance, storage, app, route, domain, certificate"

// Command is about the records of what was done with tenants.
func Command(p *command.Program) *cobra.Command {
	g := command.ClientFlags(&cobra.Command{
		Use: "audit", Short: "The audit of tenants: who has changed what, and when", Args: command.Arguments(), RunE: p.Asking(list), GroupID: command.GroupLook,
		Example: "  instar audit --tenant acme --since 2026-01-01T00:00:00Z\n  instar audit export audit.jsonl\n  instar audit verify audit.jsonl",
	})
	fs := g.Flags()
	for _, f := range [][2]string{
		{"tenant", "only of this tenant"},
		{"actor", "only of this actor, by its id or type (user, system, scheduler)"},
		{"resource", "only about this resource, by its id or type (" + Types + ")"},
		{"class", "only of this class (" + strings.Join(streams.Classes, ", ") + ")"},
		{"since", "only what has happened then or later (RFC 3339)"},
		{"until", "only what has happened before"},
	} {
		fs.String(f[0], "", f[1])
	}
	fs.Int("limit", 0, "at most so many (default: all)")
	g.AddCommand(&cobra.Command{
		Use: "export FILE", Short: "Append the records that the file lacks, as JSON lines, as far as they follow those that it has", Args: command.Arguments("FILE"), RunE: p.Asking(export),
		Long: "It appends the records that the file lacks, as JSON lines. It fails where the records of the server do not follow those of the file: some were removed or changed since, or are older than records become. What it has appended until then stays. So run it from time to time, before records have their age.",
	}, &cobra.Command{
		Use: "verify [FILE]", Short: "Check that no record was changed, removed or put in another one's place", Args: command.Between(0, "FILE"), RunE: p.Asking(verify),
		Long: "It checks the chains of the server from their beginning. With a file of export it checks that, too, that the records which both have are the same, and that the chains of the server go on behind it: who has written the chains of the server anew cannot have changed the file.",
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

func list(s *command.Session, cmd *cobra.Command, _ []string) error {
	query := s.Scoped(nil)
	for _, name := range []string{"tenant", "actor", "resource", "class", "since", "until"} {
		if v, _ := cmd.Flags().GetString(name); v != "" { // declared above
			query.Set(name, v)
		}
	}
	limit, _ := cmd.Flags().GetInt("limit")
	all, err := command.Pages(s, path, query, limit, readRecord)
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
		if len(all) == 0 {
			s.Say("There are no such records. Resources are named by their type (%s), or by their id.", Types)
			return nil
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

// chains checks those of all classes: the one of a file, where there is one, with what the server has behind it, and the one of the server.
type chains struct {
	by, own map[string]*audit.Chain // own is of the server by itself, where it is read from its beginning
	kept    map[string][]string     // hashes of the records of a file, from the first one on
	lives   map[string]audit.ChainEnd
	now     time.Time
}

// newChains asks the server how long it keeps records, and whether who asks sees all of them.
func newChains(s *command.Session, cmd *cobra.Command) (*chains, error) {
	if cmd.Flags().Changed("namespace") {
		return nil, command.Usagef("a chain has the records of all namespaces: leave out --namespace")
	}
	var page struct{ Ends map[string]audit.ChainEnd }
	if err := s.JSON(s.Ctx, client.Request{Path: path, Query: url.Values{"limit": {"1"}}}, &page); err != nil {
		return nil, err
	}
	if page.Ends == nil {
		return nil, &command.Error{Code: command.ExitAuth, Err: errors.New("the token is of one namespace, and sees only parts of the chains; give one that is good for all (--token)")}
	}
	return &chains{by: chainsOf(page.Ends), lives: page.Ends, kept: map[string][]string{}, now: time.Now()}, nil
}

func chainsOf(ends map[string]audit.ChainEnd) map[string]*audit.Chain {
	by := map[string]*audit.Chain{}
	for _, class := range streams.Classes {
		by[class] = &audit.Chain{Class: class, Life: ends[class].Life}
	}
	return by
}

// classOf is the class of a record whose chain is checked.
func classOf(line []byte) (string, error) {
	var r audit.Record
	_ = json.Unmarshal(line, &r) // what cannot be read has no class
	if !slices.Contains(streams.Classes, r.Class) {
		return "", &audit.BreakError{Class: r.Class, Sequence: r.Sequence, Why: "there is no such class, or it cannot be read"}
	}
	return r.Class, nil
}

// recorded reports whether a line has anything of a record: what was changed in one still has the rest.
func recorded(line []byte) bool {
	var r audit.Record
	_ = json.Unmarshal(line, &r)
	return r.Class != "" || r.Sequence != 0 || r.Hash != "" || bytes.Contains(line, []byte(`"hash"`))
}

// next checks a record of the server. known is one that the file has, and the same.
func (c *chains) next(line []byte) (known bool, err error) {
	class, err := classOf(line)
	if err != nil {
		return false, err
	}
	r, err := audit.Parse(line)
	if c.own != nil {
		r, err = c.own[class].Next(line, c.now)
		if err != nil {
			return false, err
		}
	}
	kept := c.kept[class]
	if len(kept) == 0 || r.Sequence >= c.by[class].First+uint64(len(kept)) {
		_, err := c.by[class].Next(line, c.now)
		return false, err
	}
	if r.Sequence >= c.by[class].First && (err != nil || r.Hash != kept[r.Sequence-c.by[class].First]) {
		return false, &audit.BreakError{Class: class, Sequence: r.Sequence, Why: "the server has another one than the file"}
	}
	return true, nil // or it is older than what the file has
}

// file reads the records of an export; one that is not there has none.
func (c *chains) file(s *command.Session, path string, mayLack bool) error {
	f, err := os.Open(path)
	if mayLack && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return command.Usagef("%s is a directory: name a file", path)
	}
	in := bufio.NewReaderSize(f, 1<<16)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if n == 1 && !recorded(line) {
			return command.Usagef("%s is no export of the audit: its first line is no record", path)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d is not complete: %w; remove it", path, n, err)
		}
		line = line[:len(line)-1]
		var missed uint64
		class, err := classOf(line)
		if err == nil {
			missed, err = c.by[class].Skip(line, c.now)
		}
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		if missed > 0 {
			s.Say("%-8s  %d records before line %d of %s had their age before they were exported", class, missed, n, path)
			c.kept[class] = nil
		}
		c.kept[class] = append(c.kept[class], c.by[class].Head.Hash)
	}
}

// behind is the cursor of the last records of a file: they are read again, as they are to be the same.
func (c *chains) behind() string {
	var after []string
	for _, class := range streams.Classes {
		if h := c.by[class].Head; h.Sequence > 1 {
			after = append(after, class+"-"+strconv.FormatUint(h.Sequence-1, 10))
		}
	}
	return strings.Join(after, ".")
}

// server reads the records of the server behind a cursor, and hands over those that are new, page by page.
func (c *chains) server(s *command.Session, after string, take func([]json.RawMessage) error) error {
	had := map[string]uint64{}
	for class, chain := range c.by {
		had[class] = chain.Head.Sequence
	}
	query := url.Values{"limit": {"500"}, "after": {after}}
	for {
		var page struct {
			Items      []json.RawMessage         `json:"items"`
			NextCursor string                    `json:"nextCursor"`
			Ends       map[string]audit.ChainEnd `json:"ends"`
		}
		if err := s.JSON(s.Ctx, client.Request{Path: path, Query: query}, &page); err != nil {
			return err
		}
		if err := c.page(page.Items, take); err != nil {
			return err
		}
		if query.Set("after", page.NextCursor); page.NextCursor == "" {
			return c.ends(page.Ends, had)
		}
	}
}

// page checks records of the server, and hands over those that are new, also when a later one is not right.
func (c *chains) page(lines []json.RawMessage, take func([]json.RawMessage) error) error {
	var fresh []json.RawMessage
	var wrong error
	for _, line := range lines {
		known, err := c.next(line)
		if err != nil {
			wrong = err
			break
		}
		if !known {
			fresh = append(fresh, line)
		}
	}
	return errors.Join(take(fresh), wrong)
}

// ends checks that the server has all, and no less than a file.
func (c *chains) ends(ends map[string]audit.ChainEnd, had map[string]uint64) error {
	for _, class := range streams.Classes {
		end := ends[class]
		if had[class] > end.Sequence {
			return &audit.BreakError{Class: class, Sequence: end.Sequence + 1, Why: fmt.Sprintf("the server has never had it, and the file has records up to %d: the chain of the server begins anew, or it is another server", had[class])}
		}
		for _, chain := range []*audit.Chain{c.by[class], c.own[class]} {
			if chain == nil {
				continue
			}
			if err := chain.End(end.Sequence, end.At, c.now); err != nil {
				return err
			}
		}
	}
	return nil
}

// told says what was checked.
func (c *chains) told(s *command.Session) {
	for _, class := range streams.Classes {
		if chain := c.by[class]; !chain.Begun {
			s.Say("%-8s  no records", class)
		} else {
			s.Say("%-8s  records %d to %d are as they were written; the hash of the last one is %s; they are kept for %d days", class, chain.First, chain.Head.Sequence, chain.Head.Hash, chain.Life.Days(class))
		}
	}
}

func verify(s *command.Session, cmd *cobra.Command, args []string) error {
	c, err := newChains(s, cmd)
	if err == nil && len(args) > 0 {
		c.own, err = chainsOf(c.lives), c.file(s, args[0], false)
	}
	if err != nil {
		return broken(err)
	}
	if err := c.server(s, "", func([]json.RawMessage) error { return nil }); err != nil {
		return broken(err)
	}
	c.told(s)
	return nil
}

func export(s *command.Session, cmd *cobra.Command, args []string) error {
	c, err := newChains(s, cmd)
	if err != nil {
		return broken(err)
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return cmp.Or(broken(c.file(s, args[0], true)), err) // which says more of what is no file
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) { // both would append the same records; some file systems know no locks
		return fmt.Errorf("another export writes %s: %w", args[0], err)
	}
	if err := c.file(s, args[0], true); err != nil {
		return broken(err)
	}
	n := 0
	err = c.server(s, c.behind(), func(lines []json.RawMessage) error {
		var text []byte
		for _, line := range lines {
			text = append(append(text, line...), '\n')
		}
		if _, err := f.Write(text); err != nil {
			return fmt.Errorf("%s may end in the middle of a line: %w", args[0], err)
		}
		n += len(lines)
		return nil
	})
	err = errors.Join(err, f.Sync())
	s.Say("%d records were appended to %s", n, args[0])
	if err != nil {
		return broken(err)
	}
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
