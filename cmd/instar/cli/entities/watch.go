package entities

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server/config"
)

func watchFlags(cmd *cobra.Command) {
	cmd.Flags().StringSlice("state", nil, "only changes into these states")
	cmd.Flags().BoolP("all-namespaces", "A", false, "of all namespaces")
}

// watch shows what is there and then every change, until it is interrupted.
func watch(s *command.Session, cmd *cobra.Command, m *machines.Machine, args []string) error {
	states, _ := cmd.Flags().GetStringSlice("state") // the flags are those of watchFlags
	everywhere, _ := cmd.Flags().GetBool("all-namespaces")
	w := client.Watching{Path: "/v1/watch", Query: s.Scoped(url.Values{"machine": {m.Name}})}
	if everywhere {
		w.Query.Set("namespace", config.AllNamespaces)
	}
	if len(args) > 0 {
		at, err := pathOf(s, m, args[0])
		if err != nil {
			return err
		}
		w.Path, w.Query = at+"/watch", s.Scoped(nil)
	}
	w.Lost = func(err error, in time.Duration) { s.Say("%v; trying again in %s", err, in) }
	w.Each = eachEntity(s, func(e *entity) error {
		if len(states) > 0 && !slices.Contains(states, e.State) {
			return nil
		}
		return showChange(s, m, e)
	})
	err := s.UntilUnread(func() error { return s.Watch(s.Ctx, w) })
	if len(args) > 0 {
		return about(err, m, args[0])
	}
	return err
}

// each takes the events of a watch apart: entities come one by one, and many in a snapshot of what there is. Those of a
// snapshot may be items of a list, without data.
func eachEntity(s *command.Session, do func(*entity) error) func(client.Event) error {
	return func(ev client.Event) error {
		switch ev.Name {
		case "snapshot":
			var part struct {
				Items []json.RawMessage `json:"items"`
			}
			if err := json.Unmarshal(ev.Data, &part); err != nil {
				return fmt.Errorf("the server's watch is not as expected: %w", err)
			}
			for _, raw := range part.Items {
				it, err := readItem(raw)
				if it.row = len(it.Whole) == 0; err == nil {
					err = do(&it.entity)
				}
				if err != nil {
					return err
				}
			}
		case "entity":
			e, err := decode(ev.Data)
			if err != nil {
				return err
			}
			return do(e)
		case client.Reset:
			s.Say("Changes were missed; the current state follows.")
		case "deleted", "parked":
			var gone struct {
				Key  string              `json:"key"`
				Item struct{ ID string } `json:"item"`
			}
			if err := json.Unmarshal(ev.Data, &gone); err != nil {
				return fmt.Errorf("the server's watch is not as expected: %w", err)
			}
			s.Say("%s: %s", ev.Name, output.Line(gone.Key+gone.Item.ID))
		}
		return nil
	}
}

// change writes one line, or one document.
func showChange(s *command.Session, m *machines.Machine, e *entity) error {
	switch {
	case s.Format == output.Name:
		_, err := fmt.Fprintln(s.Out, Name(m, e.id()))
		return err
	case s.Format == output.YAML:
		fmt.Fprintln(s.Out, "---")
		return s.Format.Value(s.Out, e.raw)
	case !s.Format.Human():
		return s.Format.Value(s.Out, e.raw)
	}
	gap := strings.Repeat(" ", max(0, 12-len(e.State))) // colours do not count
	line := fmt.Sprintf("%s  %-24s %s%s v%-4d %s", e.UpdatedAt.Local().Format(time.TimeOnly), e.id(), PaintState(s, m.States, e.State), gap, e.Version, e.why())
	_, err := fmt.Fprintln(s.Out, strings.TrimRight(line, " "))
	return err
}

// until follows one entity from a revision on until done says so, telling of every new state on the way. The deadline ends in an error
// with the exit code of a timeout; the server goes on.
func until(s *command.Session, m *machines.Machine, id string, from uint64, most time.Duration, done func(*entity) (bool, error)) (*entity, error) {
	at, err := pathOf(s, m, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := command.ContextFor(s.Ctx, most)
	defer stop()
	p := startProgress(s.Err, Name(m, id))
	defer p.stop()
	var last *entity
	err = s.Watch(ctx, client.Watching{Path: at + "/watch", Query: s.Scoped(nil), Each: eachEntity(s, func(e *entity) error {
		if e.Revision < from {
			return nil
		}
		e, err := whole(s, m, id, e)
		if err != nil || e.Revision < from {
			return err
		}
		last = e
		p.at(e.State, e.why())
		ok, err := done(e)
		if err == nil && ok {
			err = client.ErrStop
		}
		return err
	}), Lost: func(err error, in time.Duration) { p.note(fmt.Sprintf("%v; trying again in %s", err, in)) }})
	if err == nil || ctx.Err() == nil || s.Ctx.Err() != nil {
		return last, about(err, m, id)
	}
	late := &command.Error{Code: command.ExitTimeout, Try: fmt.Sprintf("instar %s wait %s --for settled", m.Name, id)}
	switch {
	case last == nil:
		late.Err = fmt.Errorf("nothing is known of %s after %s", Name(m, id), most)
	case awaits(last) != "":
		late.Err, late.Try = fmt.Errorf("%s is still %s after %s; it waits for %s", Name(m, id), last.State, most, awaits(last)), fmt.Sprintf("instar %s %s %s", m.Name, awaits(last), id)
	case underWay(m, last, begunIn(m, last.State)):
		late.Err = fmt.Errorf("%s is still %s after %s; the server goes on with it", Name(m, id), last.State, most)
	default: // somebody may have sent a command meanwhile, so it was waited for
		late.Err, late.Try = fmt.Errorf("%s is %s after %s, and does not leave that by itself", Name(m, id), last.State, most), fmt.Sprintf("instar %s get %s", m.Name, id)
	}
	return last, late
}

// whole reads the entity of an item of a list, which does not say what is under way.
func whole(s *command.Session, m *machines.Machine, id string, e *entity) (*entity, error) {
	if !e.row {
		return e, nil
	}
	resp, err := askAbout(s, m, id, "", nil)
	if err != nil {
		return nil, err
	}
	return decode(resp.Body)
}

// settle waits until the entity has left its transitional states, and what the command has begun is done, as of the command or later, and brings the result
// up to date. failed is set when it settled in a failed state, or where the command is sent from, because of a failure since then, or stands on its way.
func settle(s *command.Session, m *machines.Machine, sent, id string, r *result, begun []string, most time.Duration) (failed, err error) {
	e, err := until(s, m, id, r.Revision, most, func(e *entity) (bool, error) { return !underWay(m, e, begun), nil })
	if err != nil {
		return nil, err
	}
	version := r.Version
	r.State, r.Version, r.Revision, r.Generation = e.State, e.Version, e.Revision, e.Generation
	if failed = cmp.Or(said(s, m, e, awaits(e) != "resume" || sent == "pause"), ended(m, e)); failed != nil || e.LastError == nil || !slices.ContainsFunc(m.Edges, func(g machines.EdgeInfo) bool { return g.On == sent && g.From == e.State }) {
		return failed, nil
	}
	at, err := carriedOut(s, m, id, version)
	if err != nil {
		return nil, err
	}
	if at.IsZero() { // its events are gone
		at = e.Since
	}
	if !e.LastError.At.Before(at) {
		failed = &command.Error{Code: command.ExitFailed, Err: fmt.Errorf("%s stays %s: %s", Name(m, e.id()), e.State, e.why()), Try: fmt.Sprintf("instar %s events %s", m.Name, e.id())}
	}
	return failed, nil
}

// carriedOut is when a command led to a version, by the clock that has noted errors since; zero when the timeline does not have it.
func carriedOut(s *command.Session, m *machines.Machine, id string, version uint64) (time.Time, error) {
	at, err := pathOf(s, m, id)
	if err != nil {
		return time.Time{}, err
	}
	all, err := command.Pages(s, at+"/events", s.Scoped(url.Values{}), 0, readEvent)
	if err != nil {
		return time.Time{}, about(err, m, id)
	}
	for _, e := range all {
		if e.Version == version {
			return e.Time, nil
		}
	}
	return time.Time{}, nil
}

// begins are the effects that a command may have begun when it led to a state which is not left by itself, such as the undo of what has failed.
func begins(m *machines.Machine, sent, state string) (effects []string) {
	if st, _ := m.State(state); st.Transitional {
		return nil
	}
	for _, e := range m.Edges {
		if e.On == sent && e.To == state {
			effects = append(effects, e.Effects...)
		}
	}
	return effects
}

// underWay reports whether an entity goes on without a further command: it is in a transitional state and does not stand there, or one of some effects is under way.
func underWay(m *machines.Machine, e *entity, begun []string) bool {
	st, _ := m.State(e.State)
	return st.Transitional && !stands(e) && awaits(e) == "" || slices.ContainsFunc(begun, func(effect string) bool { return e.Effects[effect].ID != "" })
}

// stands reports whether something of the entity could not be taken back, so that it waits for somebody. All machines of sessions have this phase, in each state that an undo may be in.
func stands(e *entity) bool {
	return len(e.Effects) == 0 && output.At(e.fields, "data.phase") == "rollback_stuck"
}

// awaits is the command without which an entity does not go on, or "". All machines of sessions have these phases.
func awaits(e *entity) string {
	if len(e.Effects) > 0 {
		return ""
	}
	return map[string]string{"waiting_approval": "approve", "paused": "resume"}[output.At(e.fields, "data.phase")]
}

// said tells people of an entity that waits for a command. Where what was sent did not ask for that, it is an error, with the code of what is still under way.
func said(s *command.Session, m *machines.Machine, e *entity, asked bool) error {
	next := awaits(e)
	if next == "" {
		return nil
	}
	text, do := fmt.Sprintf("%s waits for %s", Name(m, e.id()), next), fmt.Sprintf("instar %s %s %s", m.Name, next, e.id())
	if !asked {
		return &command.Error{Code: command.ExitTimeout, Err: errors.New(text), Try: do}
	}
	if s.Format.Human() {
		s.Say("%s: %s", text, do)
	}
	return nil
}

// ended is an error when the entity is in a failed state, or stands on its way.
func ended(m *machines.Machine, e *entity) error {
	st, _ := m.State(e.State)
	text, try := fmt.Sprintf("%s ended %s", Name(m, e.id()), e.State), "events"
	switch {
	case st.Failed:
	case st.Transitional && stands(e):
		text, try = fmt.Sprintf("%s is stuck in %s: not everything could be taken back", Name(m, e.id()), e.State), "get"
	default:
		return nil
	}
	if why := e.why(); why != "" {
		text += ": " + why
	}
	return &command.Error{Code: command.ExitFailed, Err: errors.New(text), Try: fmt.Sprintf("instar %s %s %s", m.Name, try, e.id())}
}
