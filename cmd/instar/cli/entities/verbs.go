// Package entities are the commands of machines: one for each command of a table, one for each view, and the verbs that all of them
// have, such as get, ls, events, watch and wait.
package entities

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/machines"
)

// verb is something that can be asked of every machine. It becomes "instar <machine> verb" for each of them, and
// "instar entity verb MACHINE".
type verb struct {
	name  string
	args  []string // after the machine; ID stands for what identifies an entity
	least int      // how many of args are needed
	short string
	flags func(*cobra.Command)
	run   func(*command.Session, *cobra.Command, *machines.Machine, []string) error
}

var verbs = []verb{
	{name: "ls", args: []string{"PARENT"}, short: "List entities", flags: lsFlags, run: list},
	{name: "get", args: []string{"ID"}, least: 1, short: "Show an entity", run: get},
	{name: "events", args: []string{"ID"}, least: 1, short: "List the events of an entity", flags: eventsFlags, run: events},
	{name: "watch", args: []string{"ID"}, short: "Watch entities: print each change as it happens", flags: watchFlags, run: watch},
	{name: "wait", args: []string{"ID"}, least: 1, short: "Wait until an entity is in a state, or a condition holds", flags: waitFlags, run: wait},
}

// Add gives a program the commands of every machine: all of it comes from the tables. Where a machine has the name of another command, no command runs: one of both could never be called.
func Add(root *cobra.Command, p *command.Program) {
	for _, m := range p.Machines {
		for _, c := range root.Commands() {
			if slices.ContainsFunc([]string{m.Name, m.Plural}, func(name string) bool { return c.Name() == name || c.HasAlias(name) }) {
				err := fmt.Errorf("the machine %s (%s) has the name of the command \"%s\": give the machine another one", m.Name, m.Plural, c.CommandPath())
				root.PersistentPreRunE = func(*cobra.Command, []string) error { return err }
			}
		}
		g := command.ClientFlags(command.Group(m.Name, m.Doc))
		g.GroupID, g.Aliases = command.GroupMachines, []string{m.Plural}
		g.AddGroup(&cobra.Group{ID: "commands", Title: "Commands:"}, &cobra.Group{ID: "reads", Title: "Reads:"})
		for _, c := range m.Commands() {
			g.AddCommand(commandOf(p, m, c, g))
		}
		for _, v := range slices.Concat(verbs, viewsOf(m)) {
			if m.Plural == v.name || hasCommand(m, v.name) {
				continue // the machine's own one has the name; instar entity has the verb
			}
			g.AddCommand(v.of(p, m))
		}
		root.AddCommand(g)
	}
}

func hasCommand(m *machines.Machine, name string) bool {
	c, ok := m.Input(name)
	return ok && !c.Report
}

// viewsOf are the read models of a machine.
func viewsOf(m *machines.Machine) []verb {
	var vs []verb
	for _, v := range m.Views {
		vs = append(vs, verb{name: v.Name, args: []string{"ID"}, least: 1, short: v.Doc, run: func(s *command.Session, _ *cobra.Command, m *machines.Machine, args []string) error {
			return view(s, m, args[0], v.Name)
		}})
	}
	return vs
}

func (v verb) of(p *command.Program, m *machines.Machine) *cobra.Command {
	if m.Parent == "" {
		v.args = slices.DeleteFunc(slices.Clone(v.args), func(a string) bool { return a == "PARENT" })
	}
	args := slices.Clone(v.args)
	for i := range args {
		if args[i] = strings.Replace(args[i], "ID", idOf(m), 1); args[i] == "PARENT" {
			args[i] = strings.ToUpper(m.Parent)
		}
	}
	cmd := v.command(p, args, func(s *command.Session, cmd *cobra.Command, args []string) error { return v.run(s, cmd, m, args) })
	cmd.GroupID, cmd.Args = "reads", command.Between(v.least, args...)
	switch {
	case v.name == "ls":
		if !slices.Contains(CommandNames(m), "list") {
			cmd.Aliases = []string{"list"}
		}
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	case len(args) > 0:
		cmd.ValidArgsFunction = completeIDs(p, func([]string) *machines.Machine { return m }, 0)
	}
	if cmd.Flags().Lookup("state") != nil {
		_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(m), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
	return cmd
}

// generic is the verb with the machine as its first argument.
func (v verb) generic(p *command.Program) *cobra.Command {
	args := append([]string{"MACHINE"}, v.args...)
	cmd := v.command(p, args, func(s *command.Session, cmd *cobra.Command, args []string) error {
		m, err := machineOf(s, args[0])
		if err != nil {
			return err
		}
		return v.run(s, cmd, m, args[1:])
	})
	cmd.Args = command.Between(v.least+1, args...)
	cmd.ValidArgsFunction = completeMachineThen(p, 1)
	return cmd
}

func (v verb) command(p *command.Program, args []string, run func(*command.Session, *cobra.Command, []string) error) *cobra.Command {
	use := v.name
	for i, a := range args {
		if i >= len(args)-len(v.args)+v.least {
			a = "[" + a + "]"
		}
		use += " " + a
	}
	cmd := &cobra.Command{Use: use, Short: v.short, RunE: func(cmd *cobra.Command, args []string) error {
		s, err := p.Open(cmd)
		if err != nil {
			return err
		}
		return run(s, cmd, args)
	}}
	if v.flags != nil {
		v.flags(cmd)
	}
	return cmd
}

// article puts a or an before a name.
func article(name string) string {
	if name != "" && strings.ContainsRune("aeiou", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// idOf is how an entity of the machine is named on the command line.
func idOf(m *machines.Machine) string {
	if m.Parent != "" {
		return strings.ToUpper(m.Parent) + "/ID"
	}
	return "ID"
}

const labels = "1 to 63 of a-z, 0-9 and inner hyphens"

// pathOf is the path of an entity. Its id is checked here, because a path cannot carry every text.
func pathOf(s *command.Session, m *machines.Machine, id string) (string, error) {
	parent, own := "", id
	if m.Parent != "" {
		var has bool
		if parent, own, has = command.Below(id); !has || parent == "" {
			return "", command.Usagef("%q: %s is named %s", id, article(m.Name), idOf(m))
		}
		if !machines.IsLabel(parent) {
			return "", command.Usagef("%q is no %s: %s", parent, m.Parent, labels)
		}
	}
	if !machines.IsLabel(own) {
		return "", command.Usagef("%q is no id: %s", own, labels)
	}
	if m.Parent == "" {
		return "/v1/" + m.Plural + "/" + own, nil
	}
	above := m.Parent + "s" // a parent may be something that is no machine
	for _, p := range s.Program.Machines {
		if p.Name == m.Parent {
			above = p.Plural
		}
	}
	return "/v1/" + above + "/" + parent + "/" + m.Plural + "/" + own, nil
}

// ask reads something that belongs to one entity.
func askAbout(s *command.Session, m *machines.Machine, id, below string, query url.Values) (*client.Response, error) {
	at, err := pathOf(s, m, id)
	if err != nil {
		return nil, err
	}
	resp, err := s.Do(s.Ctx, client.Request{Path: at + below, Query: s.Scoped(query)})
	return resp, about(err, m, id)
}

// Name is an entity in the format of names.
func Name(m *machines.Machine, id string) string { return fmt.Sprintf("%s/%s", m.Name, id) }
