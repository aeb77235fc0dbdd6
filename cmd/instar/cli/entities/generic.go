package entities

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// Generic has all verbs with the machine as an argument: for scripts that go over machines.
func Generic(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("entity", "Commands and reads of any machine, which is the first argument"))
	g.GroupID = command.GroupLook
	for _, v := range verbs {
		g.AddCommand(v.generic(p))
	}
	g.AddCommand(genericSend(p), genericView(p), genericStored(p), genericRepair(p))
	return g
}

func genericSend(p *command.Program) *cobra.Command {
	o := &sending{}
	cmd := &cobra.Command{
		Use: "send MACHINE COMMAND ID", Short: "Send a command", Args: command.Arguments("MACHINE", "COMMAND", "ID"),
		Example: "  instar entity send service create web --set spec.image=hello --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.Open(cmd)
			if err != nil {
				return err
			}
			m, err := machineOf(s, args[0])
			if err != nil {
				return err
			}
			c, ok := m.Input(args[1])
			if !ok || c.Report {
				return command.Usagef("%s has no command %q; it has %s", m.Name, args[1], strings.Join(CommandNames(m), ", "))
			}
			body, err := form.Of(c.Body).JSON(cmd.Flags(), form.Sources{File: o.file, Stdin: s.In, Set: o.set})
			if err != nil {
				return command.Usage(err)
			}
			return send(s, m, c, args[2], body, o)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			if m, err := p.MachineOf(args[0]); err == nil {
				return CommandNames(m), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return completeMachineThen(p, 2)(cmd, args, "")
	}
	o.flags(cmd, true, false)
	return cmd
}

func genericView(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use: "view MACHINE VIEW ID", Short: "Show a read model", Args: command.Arguments("MACHINE", "VIEW", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := p.Open(cmd)
			if err != nil {
				return err
			}
			m, err := machineOf(s, args[0])
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(m.Views, func(v machines.View) bool { return v.Name == args[1] }) {
				return command.Usagef("%s has no view %q", m.Name, args[1])
			}
			return view(s, m, args[2], args[1])
		},
	}
}

// CommandNames are the commands of a machine, in the order of its table.
func CommandNames(m *machines.Machine) []string {
	var names []string
	for _, c := range m.Commands() {
		names = append(names, c.Name)
	}
	return names
}

// Completion is what a shell asks for when the user presses the tabulator.
type Completion func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeIDs offers the ids that the server knows for the argument at a place.
func completeIDs(p *command.Program, of func(args []string) *machines.Machine, place int) Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		m := of(args)
		if len(args) != place || m == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var page struct {
			Items []entity `json:"items"`
		}
		if !p.Asked(cmd, "/v1/"+m.Plural, nil, &page) {
			return nil, cobra.ShellCompDirectiveError
		}
		var ids []string
		for _, e := range page.Items {
			ids = append(ids, e.id()+"\t"+e.State)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeValues offers what the program knows for a flag, and what entities have there.
func completeValues(p *command.Program, m *machines.Machine, path []string, known []string) Completion {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		values := slices.Clone(known)
		var page struct {
			Items []struct {
				Entity struct {
					Data map[string]any `json:"data"`
				} `json:"entity"`
			} `json:"items"`
		}
		if p.Asked(cmd, "/v1/"+m.Plural, url.Values{"include": {"data"}}, &page) {
			for _, it := range page.Items {
				if v := output.At(it.Entity.Data, strings.Join(path, ".")); v != "" && !slices.Contains(values, v) {
					values = append(values, v)
				}
			}
		}
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeMachineThen offers machines, and ids for the argument at a place.
func completeMachineThen(p *command.Program, place int) Completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeIDs(p, func(args []string) *machines.Machine {
				m, _ := p.MachineOf(args[0]) // nil offers nothing
				return m
			}, place)(cmd, args, toComplete)
		}
		var names []string
		for _, m := range p.Machines {
			names = append(names, m.Name+"\t"+m.Doc)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
