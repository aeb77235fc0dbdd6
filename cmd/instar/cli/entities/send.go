package entities

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// sending are the flags that every command of a machine has.
type sending struct {
	file, reason, ifMatch, key string
	set                        []string
	wait                       time.Duration
	async, yes, dry            bool

	given bool   // the key is the caller's
	over  bool   // the body was begun with what is there
	begun string // at which revision, where the caller gives none
}

// A body that has a dry run of its own, such as one that ends after the plan, has that flag instead.
func (o *sending) flags(cmd *cobra.Command, destructive, ownDry bool) {
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "file", "f", "", "file with the body, JSON or YAML; - is standard input")
	fs.StringArrayVar(&o.set, "set", nil, "one value of the body as path=value, such as spec.image=hello (repeatable)")
	fs.StringVar(&o.reason, "reason", "", "why; shown in the timeline")
	fs.StringVar(&o.ifMatch, "if-match", "", "only if the entity is at this revision")
	fs.StringVar(&o.key, "idempotency-key", "", "under the same key the command is applied at most once (default: a new one)")
	fs.DurationVar(&o.wait, "wait", 0, "wait until it has settled, at most this long")
	fs.Lookup("wait").NoOptDefVal = "30s"
	fs.BoolVar(&o.async, "async", false, "return as soon as the command is stored")
	if !ownDry {
		fs.BoolVar(&o.dry, "dry-run", false, "say what it would do now, and do nothing")
	}
	if destructive {
		fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	}
}

// commandOf is "instar <machine> <command>", with a flag for every value of the body.
func commandOf(p *command.Program, m *machines.Machine, c machines.Command, parent *cobra.Command) *cobra.Command {
	o, f := &sending{}, form.Of(c.Body)
	cmd := &cobra.Command{
		Use: c.Name + " " + idOf(m), Short: c.Doc, GroupID: "commands", Args: command.Arguments(idOf(m)),
		ValidArgsFunction: completeIDs(p, func([]string) *machines.Machine { return m }, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.Open(cmd)
			if err != nil {
				return err
			}
			body, err := f.JSON(cmd.Flags(), form.Sources{File: o.file, Stdin: s.In, Set: o.set})
			if err != nil {
				return command.Usage(err)
			}
			err = send(s, m, c, args[0], body, o)
			if p := new(client.Problem); errors.As(err, &p) && slices.ContainsFunc(p.Errors, func(e client.FieldError) bool { return strings.Contains(e.Message, "required property") }) {
				if missing := f.Missing(body); missing != "" { // the server only knows what the body calls it
					err = command.Usagef("%s is missing", missing)
					if example := f.Example(missing); example != "" {
						err = command.Try(err, "%s", example)
					}
				}
			}
			return err
		},
	}
	if replaces(m, c, "") {
		cmd.Long = c.Doc + replacesHelp
	}
	o.flags(cmd, c.Destructive, f.Has("dryRun"))
	f.Bind(cmd.Flags(), parent.PersistentFlags())
	if examples := f.Examples(); len(examples) > 0 {
		cmd.Example = "  " + strings.Join(append([]string{"what has no flag:"}, examples...), "\n  ")
	}
	for flag, values := range f.Enums() {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
	for flag, known := range p.Providers[m.Name].Known {
		if path := f.Path(flag); path != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag, completeValues(p, m, path, known)) // the flag is there
		}
	}
	return cmd
}

// result is the server's answer to a command.
type result struct {
	Outcome    string `json:"outcome"`
	State      string `json:"state,omitempty"`
	Version    uint64 `json:"version,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	CommandID  string `json:"commandId"`
	Replayed   bool   `json:"-"` // it is the answer to an earlier command under the same key

	DryRun *struct {
		Events  []string `json:"events"`
		Effects []string `json:"effects"`
	} `json:"dryRun,omitempty"`
}

func send(s *command.Session, m *machines.Machine, c machines.Command, id string, body []byte, o *sending) error {
	if o.async && o.wait > 0 {
		return command.Usagef("--async and --wait exclude each other")
	}
	if o.dry && (o.async || o.wait > 0) {
		return command.Usagef("--dry-run does nothing that --async or --wait could be about")
	}
	at, err := pathOf(s, m, id)
	if err != nil {
		return err
	}
	if c.Destructive && !o.yes && !o.dry {
		if err := s.Confirm(fmt.Sprintf("%s %s?", c.Name, Name(m, id))); err != nil {
			return err
		}
	}
	query := s.Scoped(nil)
	if o.dry {
		query = s.Scoped(url.Values{"dryRun": {"true"}})
	}
	resp, err := post(s, m, c, at, query, body, o)
	if err != nil {
		return unsure(about(err, m, id), o.again(o.key))
	}
	var r result
	if err := json.Unmarshal(resp.Body, &r); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	r.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	if resp.Status == http.StatusAccepted {
		return accepted(s, m, c, id, resp, r, o)
	}
	var failed error
	begun := begins(m, c.Name, r.State)
	if st, _ := m.State(r.State); o.wait > 0 && (st.Transitional || len(begun) > 0) {
		if failed, err = settle(s, m, c.Name, id, &r, begun, o.wait); err != nil {
			return err
		}
		if resp.Body, err = json.Marshal(r); err != nil {
			return err
		}
	}
	if err := told(s, m, c, id, resp.Body, r); err != nil {
		return err
	}
	shown(s, resp)
	return failed
}

// shown says where the entity is to be seen, to people: beside the answer, which may be read by a program.
func shown(s *command.Session, resp *client.Response) {
	if page := s.Page(resp.Header); page != "" && s.Format.Human() {
		s.Say("  see %s", page)
	}
}

func (o *sending) header() (http.Header, error) {
	h := http.Header{}
	if o.key == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("cannot make an idempotency key: %w", err)
		}
		o.key = id.String()
	}
	h.Set("Idempotency-Key", o.key)
	if o.reason != "" {
		h.Set("Instar-Reason", o.reason)
	}
	if match := cmp.Or(o.ifMatch, o.begun); match != "" {
		if match != "*" && !strings.HasPrefix(match, `"`) {
			match = `"` + match + `"`
		}
		h.Set("If-Match", match)
	}
	if o.wait > 0 {
		h.Set("Instar-Wait", o.wait.String())
	}
	if o.async {
		h.Set("Prefer", "respond-async")
	}
	return h, nil
}

// again is how the same command is repeated.
func (o *sending) again(key string) string {
	switch {
	case o.over:
		return "the same command, which changes what is there by then"
	case key == "": // it was not sent
		return "the same command"
	}
	return "the same command with --idempotency-key " + key + ": it is applied at most once"
}

// accepted tells of a command that is stored and not decided.
func accepted(s *command.Session, m *machines.Machine, c machines.Command, id string, resp *client.Response, r result, o *sending) error {
	if err := told(s, m, c, id, resp.Body, r); err != nil {
		return err
	}
	shown(s, resp)
	if o.async {
		return nil
	}
	err := fmt.Errorf("the command is stored, but was not answered in time (command %s)", r.CommandID)
	return &command.Error{Code: command.ExitTimeout, Err: err, Try: o.again(r.CommandID)}
}

// told writes what became of a command.
func told(s *command.Session, m *machines.Machine, c machines.Command, id string, raw []byte, r result) error {
	switch {
	case s.Format == output.Name:
		_, err := fmt.Fprintln(s.Out, Name(m, id))
		return err
	case !s.Format.Human():
		return s.Format.Value(s.Out, raw)
	}
	text := Name(m, id) + " " + c.Name + ": " + r.Outcome
	if r.DryRun != nil {
		text = Name(m, id) + " " + c.Name + ": would be " + r.Outcome
	}
	if r.State != "" {
		text += ", " + PaintState(s, m.States, r.State)
	}
	if r.Version != 0 {
		text += fmt.Sprintf(", version %d", r.Version)
	}
	if d := r.DryRun; d != nil {
		for what, list := range map[string][]string{"events": d.Events, "effects": d.Effects} {
			if len(list) > 0 {
				text += "; " + what + " " + strings.Join(list, ", ")
			}
		}
	}
	if r.Replayed {
		text += " (seen before)"
	}
	if s.Format == output.Wide || r.State == "" {
		text += fmt.Sprintf(", command %s", r.CommandID)
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}
