package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// The groups of the help text.
const (
	GroupServer   = "server"
	GroupMachines = "machines"
	GroupLook     = "look"
)

// Group is a command that only holds others. Cobra would print the help and exit with 0 for an unknown one.
func Group(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		return Usagef("%s has no command %q; did you mean %q?", cmd.CommandPath(), name, near[0])
	}
	return Usagef("%s has no command %q", cmd.CommandPath(), name)
}

// Arguments demands exactly the named ones.
func Arguments(names ...string) cobra.PositionalArgs { return Between(len(names), names...) }

// Between demands the first least of the named arguments and takes all of them.
func Between(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return Usagef("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// Below takes the name of an entity apart that has a parent: <parent>/<id>, or <parent>.<id> as servers name it in keys and jobs. Without a parent the first is all of it.
func Below(name string) (parent, id string, has bool) {
	at := strings.IndexAny(name, "/.")
	if at < 0 {
		return name, "", false
	}
	return name[:at], name[at+1:], true
}
