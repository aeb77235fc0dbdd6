package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
)

// verb is something that can be asked of every machine. It becomes "instar <machine> verb" for each of them, and
// "instar entity verb MACHINE".
type verb struct {
	name  string
	args  []string // after the machine; ID stands for what identifies an entity
	least int      // how many of args are needed
	short string
	flags func(*cobra.Command)
	run   func(*session, *cobra.Command, *machines.Machine, []string) error
}

var verbs = []verb{
	{name: "ls", args: []string{"PARENT"}, short: "List them", flags: lsFlags, run: list},
	{name: "get", args: []string{"ID"}, least: 1, short: "Show one", run: get},
	{name: "events", args: []string{"ID"}, least: 1, short: "Tell its story", flags: eventsFlags, run: events},
	{name: "watch", args: []string{"ID"}, short: "Show every change as it happens", flags: watchFlags, run: watch},
	{name: "wait", args: []string{"ID"}, least: 1, short: "Wait until it is as wanted", flags: waitFlags, run: wait},
}

// machineCommands are the commands of every machine: all of it comes from the tables.
func machineCommands() []*cobra.Command {
	var groups []*cobra.Command
	for _, m := range all.Machines() {
		g := clientFlags(group(m.Name, m.Doc))
		g.GroupID, g.Aliases = groupMachines, []string{m.Plural}
		g.AddGroup(&cobra.Group{ID: "commands", Title: "Commands:"}, &cobra.Group{ID: "reads", Title: "Reads:"})
		for _, c := range m.Commands() {
			g.AddCommand(commandOf(m, c, g))
		}
		for _, v := range slices.Concat(verbs, viewsOf(m)) {
			if m.Plural == v.name || hasCommand(m, v.name) {
				continue // the machine's own one has the name; instar entity has the verb
			}
			g.AddCommand(v.of(m))
		}
		groups = append(groups, g)
	}
	return groups
}

func hasCommand(m *machines.Machine, name string) bool {
	c, ok := m.Input(name)
	return ok && !c.Report
}

// viewsOf are the read models of a machine.
func viewsOf(m *machines.Machine) []verb {
	var vs []verb
	for _, v := range m.Views {
		vs = append(vs, verb{name: v.Name, args: []string{"ID"}, least: 1, short: v.Doc, run: func(s *session, _ *cobra.Command, m *machines.Machine, args []string) error {
			return view(s, m, args[0], v.Name)
		}})
	}
	return vs
}

func (v verb) of(m *machines.Machine) *cobra.Command {
	if m.Parent == "" {
		v.args = slices.DeleteFunc(slices.Clone(v.args), func(a string) bool { return a == "PARENT" })
	}
	args := slices.Clone(v.args)
	for i := range args {
		if args[i] = strings.Replace(args[i], "ID", idOf(m), 1); args[i] == "PARENT" {
			args[i] = strings.ToUpper(m.Parent)
		}
	}
	cmd := v.command(args, func(s *session, cmd *cobra.Command, args []string) error { return v.run(s, cmd, m, args) })
	cmd.GroupID, cmd.Args = "reads", between(v.least, args...)
	switch {
	case v.name == "ls":
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	case len(args) > 0:
		cmd.ValidArgsFunction = completeIDs(func([]string) *machines.Machine { return m }, 0)
	}
	if cmd.Flags().Lookup("state") != nil {
		_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(m), cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	}
	return cmd
}

// generic is the verb with the machine as its first argument.
func (v verb) generic() *cobra.Command {
	args := append([]string{"MACHINE"}, v.args...)
	cmd := v.command(args, func(s *session, cmd *cobra.Command, args []string) error {
		m, err := machineOf(args[0])
		if err != nil {
			return err
		}
		return v.run(s, cmd, m, args[1:])
	})
	cmd.Args = between(v.least+1, args...)
	cmd.ValidArgsFunction = completeMachineThen(1)
	return cmd
}

func (v verb) command(args []string, run func(*session, *cobra.Command, []string) error) *cobra.Command {
	use := v.name
	for i, a := range args {
		if i >= len(args)-len(v.args)+v.least {
			a = "[" + a + "]"
		}
		use += " " + a
	}
	cmd := &cobra.Command{Use: use, Short: v.short, RunE: func(cmd *cobra.Command, args []string) error {
		s, err := open(cmd)
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

// machineOf finds a machine by its name or its plural.
func machineOf(name string) (*machines.Machine, error) {
	var names []string
	for _, m := range all.Machines() {
		if m.Name == name || m.Plural == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, usagef("there is no machine %q; there are %s", name, strings.Join(names, ", "))
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

// pathOf is the path of an entity. Its id is checked here, because a path cannot carry every text.
func pathOf(m *machines.Machine, id string) (string, error) {
	parent, own := "", id
	if m.Parent != "" {
		var has bool
		if parent, own, has = strings.Cut(id, "/"); !has || !machines.IsLabel(parent) {
			return "", usagef("%q: %s is named %s", id, article(m.Name), idOf(m))
		}
	}
	if !machines.IsLabel(own) {
		return "", usagef("%q is no id: 1 to 63 of a-z, 0-9 and inner hyphens", own)
	}
	if m.Parent == "" {
		return "/v1/" + m.Plural + "/" + own, nil
	}
	above := m.Parent + "s" // a parent may be something that is no machine
	for _, p := range all.Machines() {
		if p.Name == m.Parent {
			above = p.Plural
		}
	}
	return "/v1/" + above + "/" + parent + "/" + m.Plural + "/" + own, nil
}

// ask reads something that belongs to one entity.
func (s *session) ask(m *machines.Machine, id, below string, query url.Values) (*client.Response, error) {
	at, err := pathOf(m, id)
	if err != nil {
		return nil, err
	}
	resp, err := s.Do(s.ctx, client.Request{Path: at + below, Query: s.scoped(query)})
	return resp, about(err, m, id)
}

// scoped adds the namespace, when one was chosen.
func (s *session) scoped(query url.Values) url.Values {
	if query == nil {
		query = url.Values{}
	}
	if s.namespace != "" {
		query.Set("namespace", s.namespace)
	}
	return query
}

// name is an entity in the format of names.
func name(m *machines.Machine, id string) string { return fmt.Sprintf("%s/%s", m.Name, id) }
