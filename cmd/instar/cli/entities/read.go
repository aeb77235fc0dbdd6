package entities

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server/config"
)

func get(s *command.Session, _ *cobra.Command, m *machines.Machine, args []string) error {
	resp, err := askAbout(s, m, args[0], "", nil)
	switch {
	case err != nil:
		return err
	case s.Format == output.Name:
		_, err := fmt.Fprintln(s.Out, Name(m, args[0]))
		return err
	case !s.Format.Human():
		return s.Format.Value(s.Out, resp.Body)
	}
	e, err := decode(resp.Body)
	if err != nil {
		return err
	}
	return describe(s, m, e, s.Page(resp.Header))
}

// view shows a read model: one that is a list of objects as a table, another one as YAML.
func view(s *command.Session, m *machines.Machine, id, view string) error {
	resp, err := askAbout(s, m, id, "/"+view, nil)
	if err != nil {
		return err
	}
	if !s.Format.Human() {
		return s.Format.Value(s.Out, resp.Body)
	}
	var list struct {
		Items json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return fmt.Errorf("the server's view is not as expected: %w", err)
	}
	if g, ok := output.TableOf(list.Items); ok {
		return g.Write(s.Out)
	}
	return output.YAML.Value(s.Out, resp.Body)
}

func lsFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSlice("state", nil, "only in these states")
	fs.StringArrayP("label", "l", nil, "only with this label: k=v, k!=v, k in (a,b), or k (repeatable; all must hold)")
	fs.Duration("since", 0, "only those that changed within this time")
	fs.String("parent", "", "only the children of this parent")
	fs.Int("limit", 0, "at most so many (default: all)")
	fs.String("order-by", "", "id, createdAt, updatedAt or since; the times also with desc behind, as \"updatedAt desc\"")
	fs.BoolP("all-namespaces", "A", false, "of all namespaces")
}

// item is one line of a list.
type item struct {
	entity
	Problem string          `json:"problem"`
	Whole   json.RawMessage `json:"entity"`
}

func list(s *command.Session, cmd *cobra.Command, m *machines.Machine, args []string) error {
	query, limit, err := lsQuery(s, cmd, m, args)
	if err != nil {
		return err
	}
	whole := s.Format != output.Name && (!s.Format.Human() || slices.ContainsFunc(m.Columns, func(c machines.Column) bool { return strings.Contains(c.Path, ".") }))
	if whole {
		query.Set("include", "data")
	}
	items, err := command.Pages(s, "/v1/"+m.Plural, query, limit, func(raw json.RawMessage) (item, error) { return readItem(raw) })
	if err != nil {
		return err
	}
	switch {
	case s.Format.Human():
		if len(items) == 0 {
			s.Say("There are no %s here.", m.Plural)
			return nil
		}
		return writeGrid(s, m, items, query.Get("namespace") == config.AllNamespaces)
	case s.Format == output.Name:
		for _, it := range items {
			fmt.Fprintln(s.Out, Name(m, it.id()))
		}
		return nil
	}
	var raws []json.RawMessage
	for _, it := range items {
		raws = append(raws, it.raw)
	}
	return s.Format.List(s.Out, raws)
}

func lsQuery(s *command.Session, cmd *cobra.Command, m *machines.Machine, args []string) (url.Values, int, error) {
	fs := cmd.Flags()
	states, _ := fs.GetStringSlice("state") // the flags are those of lsFlags
	labels, _ := fs.GetStringArray("label")
	since, _ := fs.GetDuration("since")
	parent, _ := fs.GetString("parent")
	if len(args) > 0 {
		if parent != "" && parent != args[0] {
			return nil, 0, command.Usagef("%q and --parent %q exclude each other", args[0], parent)
		}
		parent = args[0]
	}
	limit, _ := fs.GetInt("limit")
	everywhere, _ := fs.GetBool("all-namespaces")
	query := s.Scoped(url.Values{"label": labels})
	if order, _ := fs.GetString("order-by"); order != "" {
		query.Set("orderBy", order)
	}
	for _, state := range states {
		name, err := stateCalled(m, state)
		if err != nil {
			return nil, 0, command.Usagef("--state: %w", err)
		}
		query.Add("state", name)
	}
	if since > 0 {
		query.Set("updatedAfter", time.Now().Add(-since).UTC().Format(time.RFC3339Nano))
	}
	if parent != "" {
		if m.Parent == "" {
			return nil, 0, command.Usagef("%s has no parent", article(m.Name))
		}
		query.Set("parent", parent)
	}
	if everywhere {
		query.Set("namespace", config.AllNamespaces)
	}
	return query, limit, nil
}

func stateNames(m *machines.Machine) []string {
	var names []string
	for _, st := range m.States {
		names = append(names, st.Name)
	}
	return names
}

// readItem prefers the whole entity, which may be newer than the item.
func readItem(raw json.RawMessage) (item, error) {
	var it item
	if err := json.Unmarshal(raw, &it); err != nil {
		return it, fmt.Errorf("the server's list is not as expected: %w", err)
	}
	if len(it.Whole) > 0 {
		raw = it.Whole
	}
	e, err := decode(raw)
	if err != nil {
		return it, err
	}
	it.entity = *e
	return it, nil
}

// grid writes a list as a table.
func writeGrid(s *command.Session, m *machines.Machine, items []item, namespaces bool) error {
	now := time.Now()
	g := output.Grid{Paint: func(column, text string) string {
		if column == "STATE" {
			return PaintState(s, m.States, text)
		}
		return text
	}}
	wide := s.Format == output.Wide
	if namespaces || wide {
		g.Titles = append(g.Titles, "NAMESPACE")
	}
	g.Titles = append(g.Titles, "ID", "STATE")
	for _, c := range m.Columns {
		g.Titles = append(g.Titles, strings.ToUpper(c.Title))
	}
	g.Titles = append(g.Titles, "AGE")
	if wide {
		g.Titles = append(g.Titles, "VERSION", "GENERATION", "UPDATED", "LABELS", "WHY")
	}
	for _, it := range items {
		var row []string
		if namespaces || wide {
			row = append(row, it.Namespace)
		}
		row = append(row, it.id(), it.State)
		for _, c := range m.Columns {
			row = append(row, output.At(it.fields, c.Path))
		}
		row = append(row, output.Age(it.CreatedAt, now))
		if wide {
			row = append(row, fmt.Sprint(it.Version), fmt.Sprint(it.Generation), output.Age(it.UpdatedAt, now), output.Pairs(it.Labels), it.Problem+it.why())
		}
		g.Add(row...)
	}
	return g.Write(s.Out)
}
