package main

import (
	"bufio"
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
}

func (o *sending) flags(cmd *cobra.Command, destructive bool) {
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "file", "f", "", "file with the body, JSON or YAML; - is standard input")
	fs.StringArrayVar(&o.set, "set", nil, "one value of the body as path=value, such as spec.image=hello (repeatable)")
	fs.StringVar(&o.reason, "reason", "", "why; shown in the timeline")
	fs.StringVar(&o.ifMatch, "if-match", "", "only if the entity is at this revision")
	fs.StringVar(&o.key, "idempotency-key", "", "under the same key the command is applied at most once (default: a new one)")
	fs.DurationVar(&o.wait, "wait", 0, "wait until it has settled, at most this long")
	fs.Lookup("wait").NoOptDefVal = "30s"
	fs.BoolVar(&o.async, "async", false, "return as soon as the command is stored")
	fs.BoolVar(&o.dry, "dry-run", false, "say what it would do now, and do nothing")
	if destructive {
		fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	}
}

// commandOf is "instar <machine> <command>", with a flag for every value of the body.
func commandOf(m *machines.Machine, c machines.Command, parent *cobra.Command) *cobra.Command {
	o, f := &sending{}, form.Of(c.Body)
	cmd := &cobra.Command{
		Use: c.Name + " " + idOf(m), Short: c.Doc, GroupID: "commands", Args: arguments(idOf(m)),
		ValidArgsFunction: completeIDs(func([]string) *machines.Machine { return m }, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := open(cmd)
			if err != nil {
				return err
			}
			body, err := f.JSON(cmd.Flags(), form.Sources{File: o.file, Stdin: s.in, Set: o.set})
			if err != nil {
				return usage(err)
			}
			err = s.send(m, c, args[0], body, o)
			if p := new(client.Problem); errors.As(err, &p) && slices.ContainsFunc(p.Errors, func(e client.FieldError) bool { return strings.Contains(e.Message, "required property") }) {
				if missing := f.Missing(body); missing != "" { // the server only knows what the body calls it
					return usagef("%s is missing", missing)
				}
			}
			return err
		},
	}
	o.flags(cmd, c.Destructive)
	f.Bind(cmd.Flags(), parent.PersistentFlags())
	for flag, values := range f.Enums() {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
	if cmd.Flags().Lookup("image") != nil {
		_ = cmd.RegisterFlagCompletionFunc("image", completeImages) // the flag is there
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

func (s *session) send(m *machines.Machine, c machines.Command, id string, body []byte, o *sending) error {
	if o.async && o.wait > 0 {
		return usagef("--async and --wait exclude each other")
	}
	if o.dry && (o.async || o.wait > 0) {
		return usagef("--dry-run does nothing that --async or --wait could be about")
	}
	at, err := pathOf(m, id)
	if err != nil {
		return err
	}
	if c.Destructive && !o.yes && !o.dry {
		if err := s.confirm(fmt.Sprintf("%s %s?", c.Name, name(m, id))); err != nil {
			return err
		}
	}
	header, err := o.header()
	if err != nil {
		return err
	}
	query := s.scoped(nil)
	if o.dry {
		query = s.scoped(url.Values{"dryRun": {"true"}})
	}
	resp, err := s.Do(s.ctx, client.Request{Method: http.MethodPost, Path: at + "/" + c.Name, Query: query, Header: header, Body: body})
	if err != nil {
		return unsure(about(err, m, id), header.Get("Idempotency-Key"))
	}
	var r result
	if err := json.Unmarshal(resp.Body, &r); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	r.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	if resp.Status == http.StatusAccepted {
		return s.accepted(m, c, id, resp, r, o.async)
	}
	var failed error
	if st, _ := m.State(r.State); o.wait > 0 && st.Transitional {
		if failed, err = s.settle(m, id, &r, o.wait); err != nil {
			return err
		}
		if resp.Body, err = json.Marshal(r); err != nil {
			return err
		}
	}
	if err := s.told(m, c, id, resp.Body, r); err != nil {
		return err
	}
	return failed
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
	if o.ifMatch != "" {
		if o.ifMatch != "*" && !strings.HasPrefix(o.ifMatch, `"`) {
			o.ifMatch = `"` + o.ifMatch + `"`
		}
		h.Set("If-Match", o.ifMatch)
	}
	if o.wait > 0 {
		h.Set("Instar-Wait", o.wait.String())
	}
	if o.async {
		h.Set("Prefer", "respond-async")
	}
	return h, nil
}

// unsure tells how to repeat a command of which it is not known whether it was stored.
func unsure(err error, key string) error {
	if code := codeOf(err); code != exitUnreachable && code != exitTimeout || busy(err) {
		return err
	}
	return try(err, "instar doctor, then the same command with --idempotency-key %s: it is applied at most once", key)
}

// accepted tells of a command that is stored and not decided.
func (s *session) accepted(m *machines.Machine, c machines.Command, id string, resp *client.Response, r result, asked bool) error {
	if err := s.told(m, c, id, resp.Body, r); err != nil || asked {
		return err
	}
	err := fmt.Errorf("the command is stored, but was not answered in time (command %s)", r.CommandID)
	return &exitError{code: exitTimeout, err: err, try: fmt.Sprintf("the same command with --idempotency-key %s", r.CommandID)}
}

// told writes what became of a command.
func (s *session) told(m *machines.Machine, c machines.Command, id string, raw []byte, r result) error {
	switch {
	case s.format == output.Name:
		_, err := fmt.Fprintln(s.out, name(m, id))
		return err
	case !s.format.Human():
		return s.format.Value(s.out, raw)
	}
	text := name(m, id) + " " + c.Name + ": " + r.Outcome
	if r.DryRun != nil {
		text = name(m, id) + " " + c.Name + ": would be " + r.Outcome
	}
	if r.State != "" {
		text += ", " + s.colourState(m, r.State)
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
	if s.format == output.Wide || r.State == "" {
		text += fmt.Sprintf(", command %s", r.CommandID)
	}
	_, err := fmt.Fprintln(s.out, text)
	return err
}

// confirm asks a person; scripts are not asked.
func (s *session) confirm(question string) error {
	if !terminal(s.in) {
		return nil
	}
	fmt.Fprintf(s.err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(s.in).ReadString('\n') // its end is a no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &exitError{code: exitGeneric, err: fmt.Errorf("not done"), try: "the same command with -y"}
}
