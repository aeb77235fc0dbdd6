package entities

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
	"github.com/bcc94042/instar/server/config"
)

// Tables shows the tables that this program was built with, and those that only the server has.
func Tables(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("machine", "The tables: states, commands, diagrams"))
	g.GroupID = command.GroupLook
	g.AddCommand(
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the machines", Args: command.Arguments(), RunE: p.Asking(machineLs)},
		tableCommand(p, "show", "Show the table of a machine", machineShow),
		graphCommand(p),
		tableCommand(p, "counts", "Count the entities of a machine by state", machineCounts),
	)
	return g
}

func tableCommand(p *command.Program, use, short string, run func(*command.Session, entities.Graph) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " MACHINE", Short: short, Args: command.Arguments("MACHINE"), ValidArgsFunction: completeMachineThen(p, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.Open(cmd)
			if err != nil {
				return err
			}
			m, err := machineOf(s, args[0])
			if err != nil {
				return err
			}
			return run(s, entities.GraphOf(m))
		},
	}
}

// machineOf finds a machine by its name or plural. The server is asked for one that this program does not have.
func machineOf(s *command.Session, name string) (*machines.Machine, error) {
	m, err := s.Program.MachineOf(name)
	if err == nil {
		return m, nil
	}
	more, asked := onlyThere(s)
	for _, g := range more {
		if g.Name == name || g.Plural == name {
			return g.Machine(), nil
		}
	}
	return nil, errors.Join(err, asked)
}

// onlyThere are the tables of the server that this program does not have, as of a machine that was added while the server runs.
func onlyThere(s *command.Session) ([]entities.Graph, error) {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/machines"})
	if err != nil {
		return nil, err
	}
	var list entities.MachineList
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return nil, fmt.Errorf("the server's machines are not as expected: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(g entities.Graph) bool {
		_, err := s.Program.Machine(g.Name)
		return err == nil
	}), nil
}

func machineLs(s *command.Session, _ *cobra.Command, _ []string) error {
	g := output.Grid{Titles: []string{"MACHINE", "PLURAL", "PARENT", "STATES", "COMMANDS", "ABOUT"}}
	more, err := onlyThere(s)
	if err != nil {
		s.Say("without machines that only a server has: %v", err)
	}
	var raws []json.RawMessage
	for _, m := range append(entities.Graphs(s.Program.Machines), more...) {
		raw, err := json.Marshal(m)
		if err != nil {
			return err
		}
		raws = append(raws, raw)
		var names []string
		for _, c := range m.Commands {
			if !c.Report {
				names = append(names, c.Name)
			}
		}
		g.Add(m.Name, m.Plural, m.Parent, fmt.Sprint(len(m.States)), strings.Join(names, ","), m.Doc)
		if s.Format == output.Name {
			fmt.Fprintln(s.Out, m.Name)
		}
	}
	switch {
	case s.Format == output.Name:
		return nil
	case s.Format.Human():
		return g.Write(s.Out)
	}
	return s.Format.List(s.Out, raws)
}

func machineShow(s *command.Session, graph entities.Graph) error {
	if !s.Format.Human() {
		raw, err := json.Marshal(graph)
		if err != nil {
			return err
		}
		return s.Format.Value(s.Out, raw)
	}
	fmt.Fprintf(s.Out, "%s: %s\n\n", graph.Name, graph.Doc)
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
			fmt.Fprintln(s.Out)
		}
		if err := g.Write(s.Out); err != nil {
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
func graphCommand(p *command.Program) *cobra.Command {
	cmd := &cobra.Command{Use: "graph MACHINE", Short: "Draw the table of a machine", Args: command.Arguments("MACHINE"), ValidArgsFunction: completeMachineThen(p, -1)}
	format := cmd.Flags().StringP("output", "o", "mermaid", "mermaid, dot or json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m, err := p.MachineOf(args[0])
		if err != nil {
			return err
		}
		switch *format {
		case "mermaid":
			_, err = fmt.Fprint(cmd.OutOrStdout(), diagram.Mermaid(m))
		case "dot":
			_, err = fmt.Fprint(cmd.OutOrStdout(), diagram.DOT(m))
		case "json":
			var raw []byte
			if raw, err = json.Marshal(entities.GraphOf(m)); err == nil {
				err = output.JSON.Value(cmd.OutOrStdout(), raw)
			}
		default:
			return command.Usagef("-o: %q is none of mermaid, dot, json", *format)
		}
		return err
	}
	return cmd
}

func machineCounts(s *command.Session, m entities.Graph) error {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/machines/" + m.Name + "/counts", Query: s.Scoped(nil)})
	if err != nil {
		return err
	}
	if !s.Format.Human() {
		return s.Format.Value(s.Out, resp.Body)
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
			return PaintState(s, m.States, text)
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
	return g.Write(s.Out)
}
