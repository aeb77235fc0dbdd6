package main

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/instances"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
)

// entityCommand has all verbs with the machine as an argument: for scripts that go over machines.
func entityCommand() *cobra.Command {
	g := clientFlags(group("entity", "Every verb, with the machine as an argument"))
	g.GroupID = groupLook
	for _, v := range verbs {
		g.AddCommand(v.generic())
	}
	g.AddCommand(genericSend(), genericView(), genericStored(), genericRepair())
	return g
}

func genericSend() *cobra.Command {
	o := &sending{}
	cmd := &cobra.Command{
		Use: "send MACHINE COMMAND ID", Short: "Send a command", Args: arguments("MACHINE", "COMMAND", "ID"),
		Example: "  instar entity send service create web --set spec.image=hello --wait",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := machineOf(args[0])
			if err != nil {
				return err
			}
			c, ok := m.Input(args[1])
			if !ok || c.Report {
				return usagef("%s has no command %q; it has %s", m.Name, args[1], strings.Join(commandNames(m), ", "))
			}
			s, err := open(cmd)
			if err != nil {
				return err
			}
			body, err := form.Of(c.Body).JSON(cmd.Flags(), form.Sources{File: o.file, Stdin: s.in, Set: o.set})
			if err != nil {
				return usage(err)
			}
			return s.send(m, c, args[2], body, o)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			if m, err := machineOf(args[0]); err == nil {
				return commandNames(m), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return completeMachineThen(2)(cmd, args, "")
	}
	o.flags(cmd, true)
	return cmd
}

func genericView() *cobra.Command {
	return &cobra.Command{
		Use: "view MACHINE VIEW ID", Short: "Show a read model", Args: arguments("MACHINE", "VIEW", "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := machineOf(args[0])
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(m.Views, func(v machines.View) bool { return v.Name == args[1] }) {
				return usagef("%s has no view %q", m.Name, args[1])
			}
			s, err := open(cmd)
			if err != nil {
				return err
			}
			return view(s, m, args[2], args[1])
		},
	}
}

func commandNames(m *machines.Machine) []string {
	var names []string
	for _, c := range m.Commands() {
		names = append(names, c.Name)
	}
	return names
}

// completion is what a shell asks for when the user presses the tabulator.
type completion func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// completeIDs offers the ids that the server knows for the argument at a place.
func completeIDs(of func(args []string) *machines.Machine, place int) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		m := of(args)
		if len(args) != place || m == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var page struct {
			Items []entity `json:"items"`
		}
		if !asked(cmd, "/v1/"+m.Plural, nil, &page) {
			return nil, cobra.ShellCompDirectiveError
		}
		var ids []string
		for _, e := range page.Items {
			ids = append(ids, e.id()+"\t"+e.State)
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeImages offers what the program has built in, and what services have.
func completeImages(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	images := []string{"hello", "static"}
	var page struct {
		Items []struct {
			Entity struct {
				Data struct {
					Spec struct {
						Image string `json:"image"`
					} `json:"spec"`
				} `json:"data"`
			} `json:"entity"`
		} `json:"items"`
	}
	if asked(cmd, "/v1/services", url.Values{"include": {"data"}}, &page) {
		for _, it := range page.Items {
			if image := it.Entity.Data.Spec.Image; image != "" && !slices.Contains(images, image) {
				images = append(images, image)
			}
		}
	}
	return images, cobra.ShellCompDirectiveNoFileComp
}

// completeServices offers the services that have instances.
func completeServices(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var list instances.DiscoveredServices
	if len(args) > 0 || !asked(cmd, "/v1/discover", nil, &list) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range list.Services {
		names = append(names, s.Service)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// asked reports whether the server has answered a question of a completion, which nobody waits long for.
func asked(cmd *cobra.Command, path string, query url.Values, into any) bool {
	s, err := open(cmd)
	if err != nil {
		return false
	}
	ctx, stop := contextFor(s.ctx, 2*time.Second)
	defer stop()
	return s.JSON(ctx, client.Request{Path: path, Query: s.scoped(query)}, into) == nil
}

// completeMachineThen offers machines, and ids for the argument at a place.
func completeMachineThen(place int) completion {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return completeIDs(func(args []string) *machines.Machine {
				m, _ := machineOf(args[0]) // nil offers nothing
				return m
			}, place)(cmd, args, toComplete)
		}
		var names []string
		for _, m := range all.Machines() {
			names = append(names, m.Name+"\t"+m.Doc)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
