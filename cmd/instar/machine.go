package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/server/config"
)

// machineCommand shows the tables that this program was built with; only counts ask a server.
func machineCommand() *cobra.Command {
	g := clientFlags(group("machine", "The tables: states, commands, diagrams"))
	g.GroupID = groupLook
	g.AddCommand(
		&cobra.Command{Use: "ls", Short: "List the machines", Args: arguments(), RunE: machineLs},
		tableCommand("show", "Show the table of one", machineShow),
		graphCommand(),
		tableCommand("counts", "Count the entities of one by state", machineCounts),
	)
	return g
}

func tableCommand(use, short string, run func(*session, *machines.Machine) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " MACHINE", Short: short, Args: arguments("MACHINE"), ValidArgsFunction: completeMachineThen(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := machineOf(args[0])
			if err != nil {
				return err
			}
			s, err := open(cmd)
			if err != nil {
				return err
			}
			return run(s, m)
		},
	}
}

func machineLs(cmd *cobra.Command, _ []string) error {
	s, err := open(cmd)
	if err != nil {
		return err
	}
	g := output.Grid{Titles: []string{"MACHINE", "PLURAL", "PARENT", "STATES", "COMMANDS", "ABOUT"}}
	var raws []json.RawMessage
	for _, m := range all.Machines() {
		raw, err := json.Marshal(m.Graph())
		if err != nil {
			return err
		}
		raws = append(raws, raw)
		g.Add(m.Name, m.Plural, m.Parent, fmt.Sprint(len(m.States)), strings.Join(commandNames(m), ","), m.Doc)
		if s.format == output.Name {
			fmt.Fprintln(s.out, m.Name)
		}
	}
	switch {
	case s.format == output.Name:
		return nil
	case s.format.Human():
		return g.Write(s.out)
	}
	return s.format.List(s.out, raws)
}

func machineShow(s *session, m *machines.Machine) error {
	graph := m.Graph()
	if !s.format.Human() {
		raw, err := json.Marshal(graph)
		if err != nil {
			return err
		}
		return s.format.Value(s.out, raw)
	}
	fmt.Fprintf(s.out, "%s: %s\n\n", m.Name, m.Doc)
	states := output.Grid{Titles: []string{"STATE", "KIND", "DEADLINE", "LOOKS", "ABOUT"}}
	for _, st := range graph.States {
		looks := ""
		if st.Poll != nil {
			looks = fmt.Sprintf("%s every %s", st.Poll.Effect, st.Poll.Every)
		}
		states.Add(st.Name, kindOf(st), st.Deadline, looks, st.Doc)
	}
	commands := output.Grid{Titles: []string{"COMMAND", "FROM", "ROLE", "ABOUT"}}
	for _, c := range graph.Commands {
		if c.Report {
			continue
		}
		role := config.RoleOperate
		if c.Admin {
			role = config.RoleAdmin
		}
		commands.Add(c.Name, fromStates(c.From), role, c.Doc)
	}
	edges := output.Grid{Titles: []string{"FROM", "ON", "IF", "TO", "EVENTS", "EFFECTS"}}
	for _, e := range graph.Edges {
		edges.Add(fromStates([]string{e.From}), e.On, e.If, e.To, strings.Join(e.Emit, ","), strings.Join(e.Effects, ","))
	}
	for i, g := range []*output.Grid{&states, &commands, &edges} {
		if i > 0 {
			fmt.Fprintln(s.out)
		}
		if err := g.Write(s.out); err != nil {
			return err
		}
	}
	return nil
}

func kindOf(st machines.StateInfo) string {
	switch {
	case st.Transitional:
		return "on its way"
	case st.Failed:
		return "failed"
	case st.Terminal:
		return "end"
	}
	return "stays"
}

func fromStates(from []string) string {
	names := make([]string, len(from))
	for i, state := range from {
		if names[i] = state; state == machines.None {
			names[i] = "(none)"
		}
	}
	return strings.Join(names, ",")
}

// graphCommand has formats of its own: a drawing is neither a table nor a list.
func graphCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "graph MACHINE", Short: "Draw one", Args: arguments("MACHINE"), ValidArgsFunction: completeMachineThen(-1)}
	format := cmd.Flags().StringP("output", "o", "mermaid", "mermaid, dot or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := machineOf(args[0])
		if err != nil {
			return err
		}
		switch *format {
		case "mermaid":
			_, err = fmt.Fprint(cmd.OutOrStdout(), m.Mermaid())
		case "dot":
			_, err = fmt.Fprint(cmd.OutOrStdout(), m.DOT())
		case "json":
			var raw []byte
			if raw, err = json.Marshal(m.Graph()); err == nil {
				err = output.JSON.Value(cmd.OutOrStdout(), raw)
			}
		default:
			return usagef("-o: %q is none of mermaid, dot, json", *format)
		}
		return err
	}
	return cmd
}

func machineCounts(s *session, m *machines.Machine) error {
	resp, err := s.Do(s.ctx, client.Request{Path: "/v1/machines/" + m.Name + "/counts", Query: s.scoped(nil)})
	if err != nil {
		return err
	}
	if !s.format.Human() {
		return s.format.Value(s.out, resp.Body)
	}
	var counts struct {
		Total  int            `json:"total"`
		States map[string]int `json:"states"`
		Parked int            `json:"parked"`
	}
	if err := json.Unmarshal(resp.Body, &counts); err != nil {
		return fmt.Errorf("the server's counts are not as expected: %w", err)
	}
	g := output.Grid{Titles: []string{"STATE", "COUNT"}, Paint: func(column, text string) string {
		if column == "STATE" {
			return s.colourState(m, text)
		}
		return text
	}}
	for _, st := range m.States {
		g.Add(st.Name, fmt.Sprint(counts.States[st.Name]))
	}
	if counts.Parked > 0 {
		g.Add("(parked)", fmt.Sprint(counts.Parked))
	}
	g.Add("(all)", fmt.Sprint(counts.Total))
	return g.Write(s.out)
}
