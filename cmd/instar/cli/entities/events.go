package entities

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func eventsFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Uint64("after", 0, "only behind this sequence")
	fs.Int("limit", 0, "at most so many (default: all)")
	fs.StringSlice("type", nil, "only of these types")
	fs.Bool("verify", false, "fail when one is missing between them: each names the one before it, as the stream checked when it was taken")
	fs.BoolP("follow", "F", false, "go on with what happens from now on")
}

// event is one line of a timeline.
type event struct {
	Seq     uint64    `json:"seq"`
	Before  uint64    `json:"previous"`
	Type    string    `json:"type"`
	Time    time.Time `json:"time"`
	Version uint64    `json:"version"`
	From    string    `json:"from"`
	To      string    `json:"to"`
	Command string    `json:"command"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`

	raw json.RawMessage
}

func readEvent(raw json.RawMessage) (event, error) {
	e := event{raw: raw}
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, fmt.Errorf("the server's timeline is not as expected: %w", err)
	}
	return e, nil
}

// step is the transition, or the state in which it happened.
func (e *event) step() string {
	switch {
	case e.From == e.To:
		return e.To
	case e.From == "":
		return "→ " + e.To
	}
	return e.From + " → " + e.To
}

func events(s *command.Session, cmd *cobra.Command, m *machines.Machine, args []string) error {
	fs := cmd.Flags()
	after, _ := fs.GetUint64("after") // the flags are those of eventsFlags
	limit, _ := fs.GetInt("limit")
	types, _ := fs.GetStringSlice("type")
	follow, _ := fs.GetBool("follow")
	verify, _ := fs.GetBool("verify")
	if verify && (follow || len(types) > 0) {
		return command.Usagef("--verify is about all events: leave out --follow and --type")
	}
	at, err := pathOf(s, m, args[0])
	if err != nil {
		return err
	}
	query := s.Scoped(url.Values{"type": types})
	if after > 0 {
		query.Set("after", strconv.FormatUint(after, 10))
	}
	all, err := command.Pages(s, at+"/events", query, limit, readEvent)
	if err != nil {
		return about(err, m, args[0])
	}
	if err := timeline(s, all, !follow); err != nil {
		return err
	}
	if verify {
		return unbroken(s, all, after)
	}
	if !follow {
		return nil
	}
	return s.UntilUnread(func() error { return followTimeline(s, at+"/events", query, all) })
}

// shortestLife is how long every event is kept, unless the stream has reached its bound of bytes: then the oldest of all go.
var shortestLife = streams.LifeOf(string(machines.ClassProgress))

// unbroken fails when an event is missing that can have gone neither for its age nor for the size of the stream: behind one that is there, and
// has not the age yet at which events go. What is missing behind an older one may have had it.
func unbroken(s *command.Session, all []event, after uint64) error {
	gone := 0
	for i := 1; i < len(all); i++ {
		switch {
		case all[i].Before == all[i-1].Seq:
		case all[i].Before == 0:
			return errors.New("this server does not tell which event is before another: it is older than this program")
		case time.Since(all[i-1].Time) < shortestLife:
			return fmt.Errorf("the event at %d follows one at %d, which is not there: events behind %d were removed", all[i].Seq, all[i].Before, all[i-1].Seq)
		default:
			gone++
		}
	}
	s.Say("the chain of %d events is complete, except for %d gaps of events that have aged out", len(all), gone)
	if len(all) > 0 && all[0].Before > after {
		s.Say("earlier events are gone: they exceeded the stream's age or size, or were purged")
	}
	return nil
}

// followEvery is how often a timeline is looked at that is followed.
const followEvery = time.Second

// follow writes new events as they come. A server that is away for a while is waited for.
func followTimeline(s *command.Session, path string, query url.Values, seen []event) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if len(seen) > 0 {
			query.Set("after", strconv.FormatUint(seen[len(seen)-1].Seq, 10))
		}
		select {
		case <-s.Ctx.Done():
			return s.Ctx.Err()
		case <-tick.C:
		}
		more, err := command.Pages(s, path, query, 0, readEvent)
		if err != nil && command.CodeOf(err) == command.ExitUnreachable {
			s.Say("%v; trying again", err)
			continue
		}
		if err != nil {
			return err
		}
		if err := timeline(s, more, false); err != nil {
			return err
		}
		if len(more) > 0 {
			seen = more
		}
	}
}

// timeline writes events: as a table when all of them are known, or line by line.
func timeline(s *command.Session, all []event, whole bool) error {
	switch {
	case s.Format == output.Name:
		for _, e := range all {
			fmt.Fprintln(s.Out, e.Type)
		}
		return nil
	case s.Format.Human() && whole:
		g := output.Grid{Titles: []string{"SEQ", "TIME", "EVENT", "STATE", "VERSION", "COMMAND", "ACTOR", "REASON"}}
		for _, e := range all {
			g.Add(fmt.Sprint(e.Seq), e.Time.Local().Format(time.DateTime), e.Type, e.step(), fmt.Sprint(e.Version), e.Command, e.Actor, e.Reason)
		}
		return g.Write(s.Out)
	case s.Format.Human():
		for _, e := range all {
			fmt.Fprintf(s.Out, "%s  %-34s %-22s %s\n", e.Time.Local().Format(time.TimeOnly), e.Type, e.step(), output.Line(e.Reason))
		}
		return nil
	}
	var raws []json.RawMessage
	for _, e := range all {
		raws = append(raws, e.raw)
	}
	if !whole {
		return output.JSONL.List(s.Out, raws)
	}
	return s.Format.List(s.Out, raws)
}
