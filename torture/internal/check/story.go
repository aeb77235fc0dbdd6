package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Story prints all that is known of one entity: what clients asked, what the events tell, what is stored.
func Story(w io.Writer, h *History, key string) {
	fmt.Fprintf(w, "--- the story of %s\n", key)
	var commands []Command
	for _, c := range h.Commands {
		if c.Key == key {
			commands = append(commands, c)
		}
	}
	slices.SortFunc(commands, func(a, b Command) int { return a.Sent.Compare(b.Sent) })
	fmt.Fprintf(w, "%d commands by their clients:\n", len(commands))
	for _, c := range commands {
		fmt.Fprintf(w, "  %s..%s %s %s %d tries: %s %s version %d state %s duplicate %t body %s\n",
			clock(c.Sent), clock(c.Answered), c.ID, c.Name, c.Tries, cmp.Or(c.Outcome, "no answer"), c.Code, c.Version, c.State, c.Duplicate, c.Body)
	}
	events := stories(h.Events)[key]
	fmt.Fprintf(w, "%d events:\n", len(events))
	for _, e := range events {
		fmt.Fprintf(w, "  %d %s %s %s: %s -> %s by %s %s\n", e.Seq, clock(e.Body.Time), e.ID, e.Type, cmp.Or(e.Body.From, "(none)"), e.Body.To, e.Body.Command, e.Body.CommandID)
	}
	v, ok := h.Values[key]
	if !ok {
		fmt.Fprintln(w, "no value is stored")
		return
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, v.Raw, "  ", "  ") != nil {
		pretty.Reset()
		pretty.Write(v.Raw)
	}
	fmt.Fprintf(w, "value at revision %d:\n  %s\n", v.Revision, pretty.String())
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("15:04:05.000")
}
