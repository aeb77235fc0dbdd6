package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// deadCommand is about the messages that no code could handle.
func deadCommand(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("dlq", "Dead letters: messages that no code could handle"))
	g.GroupID = command.GroupLook
	ls := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List dead letters, oldest first", Args: command.Arguments(), RunE: p.Asking(deadLs)}
	ls.Flags().String("machine", "", "only of this machine")
	ls.Flags().Int("limit", 0, "at most so many (default: all)")
	redrive := &cobra.Command{
		Use: "redrive [SEQ...]", Short: "Publish dead letters to their original subjects again", Args: cobra.ArbitraryArgs, RunE: p.Asking(deadRedrive),
		Example: "  instar dlq redrive 7 9\n  instar dlq redrive --all --machine service",
	}
	redrive.Flags().Bool("all", false, "all that there are")
	redrive.Flags().String("machine", "", "with --all: only of this machine")
	redrive.Flags().BoolP("yes", "y", false, "do not ask")
	edit := &cobra.Command{
		Use: "edit SEQ", Short: "Send the command of a dead letter with another body; the letter stays if that is refused", Args: command.Arguments("SEQ"), RunE: p.Asking(deadEdit),
		Example: "  instar dlq show 7 -o json | jq .body > body.json\n  instar dlq edit 7 --body body.json --reason 'typo in the size'",
	}
	edit.Flags().String("body", "", "file with the body as JSON; - is standard input")
	edit.Flags().String("reason", "", "why; shown in the timeline")
	drop := &cobra.Command{
		Use: "drop SEQ...", Short: "Remove dead letters for good; nobody handles them", Args: cobra.ArbitraryArgs, RunE: p.Asking(deadDrop),
		Example: "  instar dlq drop 7 9 --reason 'nobody sends it any more'",
	}
	drop.Flags().String("reason", "", "why; the server logs it with what was dropped")
	g.AddCommand(ls, &cobra.Command{Use: "show SEQ", Short: "Show a dead letter with its body", Args: command.Arguments("SEQ"), RunE: p.Asking(deadShow)}, redrive, edit, drop)
	return g
}

// letter is a dead letter in a list.
type letter struct {
	Seq      uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	Consumer string    `json:"consumer"`
	Machine  string    `json:"machine"`
	Key      string    `json:"key"`
	Reason   string    `json:"reason"`
	Tries    int       `json:"tries"`

	raw json.RawMessage
}

func deadLs(s *command.Session, cmd *cobra.Command, _ []string) error {
	machine, _ := cmd.Flags().GetString("machine") // declared above
	limit, _ := cmd.Flags().GetInt("limit")
	query := url.Values{}
	if machine != "" {
		query.Set("machine", machine)
	}
	letters, err := command.Pages(s, "/v1/dead-letters", query, limit, func(raw json.RawMessage) (letter, error) {
		l := letter{raw: raw}
		if err := json.Unmarshal(raw, &l); err != nil {
			return l, fmt.Errorf("the server's dead letters are not as expected: %w", err)
		}
		return l, nil
	})
	if err != nil {
		return err
	}
	switch {
	case s.Format == output.Name:
		for _, l := range letters {
			fmt.Fprintln(s.Out, l.Seq)
		}
		return nil
	case s.Format.Human() && len(letters) == 0:
		s.Say("There are no dead letters.")
		return nil
	case s.Format.Human():
		g := output.Grid{Titles: []string{"SEQ", "AGE", "CONSUMER", "MACHINE", "KEY", "TRIES", "REASON"}}
		for _, l := range letters {
			g.Add(fmt.Sprint(l.Seq), output.Age(l.Time, time.Now()), l.Consumer, l.Machine, l.Key, fmt.Sprint(l.Tries), l.Reason)
		}
		return g.Write(s.Out)
	}
	var raws []json.RawMessage
	for _, l := range letters {
		raws = append(raws, l.raw)
	}
	return s.Format.List(s.Out, raws)
}

func deadShow(s *command.Session, _ *cobra.Command, args []string) error {
	seq, err := sequence(args[0])
	if err != nil {
		return err
	}
	resp, err := s.Do(s.Ctx, client.Request{Path: fmt.Sprintf("/v1/dead-letters/%d", seq)})
	if err != nil {
		return command.Try(err, "instar dlq ls")
	}
	format := s.Format
	if format.Human() {
		format = output.YAML
	}
	return format.Value(s.Out, resp.Body)
}

func sequence(text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return 0, command.Usagef("%q is no sequence of a dead letter", text)
	}
	return seq, nil
}

func sequences(args []string) (seqs []uint64, err error) {
	for _, a := range args {
		seq, err := sequence(a)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

func deadEdit(s *command.Session, cmd *cobra.Command, args []string) error {
	file, _ := cmd.Flags().GetString("body") // declared above
	reason, _ := cmd.Flags().GetString("reason")
	seq, err := sequence(args[0])
	if err != nil {
		return err
	}
	if file == "" {
		return command.Usagef("name a file with --body; - is standard input")
	}
	body, err := form.Text(file, s.In)
	if err != nil {
		return command.Usagef("cannot read the body: %v", err)
	}
	if text := bytes.TrimSpace(body); !json.Valid(text) || string(text) == "null" { // which the server takes for the body that it has
		return command.Usagef("the body in %s is no JSON, or null; to send it as it is: instar dlq redrive %d", file, seq)
	}
	raw, err := json.Marshal(map[string]json.RawMessage{"body": body}) // as it is: a number in it may be one that Go cannot hold
	if err != nil {
		return err
	}
	header := http.Header{}
	if reason != "" {
		header.Set("Instar-Reason", reason)
	}
	resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: fmt.Sprintf("/v1/dead-letters/%d/redrive", seq), Header: header, Body: raw})
	if err != nil {
		return command.Try(err, "instar dlq show %d", seq)
	}
	return became(s, resp.Body, "redriven")
}

func deadDrop(s *command.Session, cmd *cobra.Command, args []string) error {
	reason, _ := cmd.Flags().GetString("reason") // declared above
	if len(args) == 0 || reason == "" {
		return command.Usagef("name sequences, and say why with --reason: the server logs it with what was dropped")
	}
	seqs, err := sequences(args)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"seqs": seqs, "reason": reason})
	if err != nil {
		return err
	}
	resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: "/v1/dead-letters/drop", Body: body})
	if err != nil {
		return err
	}
	return became(s, resp.Body, "dropped")
}

func deadRedrive(s *command.Session, cmd *cobra.Command, args []string) error {
	all, _ := cmd.Flags().GetBool("all") // declared above
	machine, _ := cmd.Flags().GetString("machine")
	yes, _ := cmd.Flags().GetBool("yes")
	if all == (len(args) > 0) || machine != "" && !all {
		return command.Usagef("name sequences, or --all and perhaps --machine")
	}
	want := map[string]any{}
	seqs, err := sequences(args)
	if err != nil {
		return err
	}
	if all {
		want["all"] = true
		if !yes {
			if err := s.Confirm("put all dead letters back?"); err != nil {
				return err
			}
		}
	} else {
		want["seqs"] = seqs
	}
	if machine != "" {
		want["machine"] = machine
	}
	body, err := json.Marshal(want)
	if err != nil {
		return err
	}
	resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: "/v1/dead-letters/redrive", Body: body})
	if err != nil {
		return err
	}
	return became(s, resp.Body, "redriven")
}

// became tells which letters were redriven, or dropped, and fails when one of them was not.
func became(s *command.Session, raw []byte, what string) error {
	var r struct {
		Redriven []uint64 `json:"redriven"`
		Dropped  []uint64 `json:"dropped"`
		Failed   []struct {
			Seq    uint64 `json:"seq"`
			Detail string `json:"detail"`
		} `json:"failed"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	if s.Format.Human() || s.Format == output.Name {
		done := append(r.Redriven, r.Dropped...)
		for _, seq := range done {
			fmt.Fprintf(s.Out, "%d\n", seq)
		}
		s.Say("%d %s, %d failed", len(done), what, len(r.Failed))
	} else if err := s.Format.Value(s.Out, raw); err != nil {
		return err
	}
	for _, f := range r.Failed {
		s.Say("%d: %s", f.Seq, f.Detail)
	}
	if len(r.Failed) > 0 {
		return command.Try(fmt.Errorf("%d dead letters were not %s", len(r.Failed), what), "instar dlq ls")
	}
	return nil
}
