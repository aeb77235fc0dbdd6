package main

import (
	"context"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/providers/process/builtin"
)

// execute runs the command line and returns the exit code. The first interrupt ends the command in an orderly way, a
// second one ends the process.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "run-template" { // what the process gateway starts; it has signals of its own
		return builtin.Main(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return report(ctx, stderr, cmd, err)
}

func rootCommand() *cobra.Command {
	root := group("instar", "Durable state machines for things, on NATS JetStream")
	root.Long = `Instar takes things through their stages: every entity is a durable finite state machine on NATS JetStream.

  instar dev                          start a server here, with nothing to set up
  instar service create web --image hello --wait
  instar service watch

Exit codes: 0 ok, 1 other failures, 2 usage or invalid input, 3 not found, 4 refused (conflict, illegal transition,
precondition), 5 not allowed, 6 still under way when the wait ended, 7 ended in a failed state, 8 server unreachable,
130 interrupted, 141 nobody reads the output any more.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddGroup(
		&cobra.Group{ID: groupServer, Title: "Server:"},
		&cobra.Group{ID: groupMachines, Title: "Machines:"},
		&cobra.Group{ID: groupLook, Title: "Looking and repairing:"},
	)
	root.AddCommand(devCommand(), serveCommand(), backupCommand(), restoreCommand(), clusterCommand(), nodeCommand(), tokenCommand(), entityCommand(), machineCommand(), discoverCommand(), deadCommand(), outboxCommand(), demoCommand(), opCommand(), ctxCommand(), doctorCommand(), versionCommand(),
		documentCommand("openapi", "/openapi.json", "Print the server's HTTP interface as OpenAPI"),
		documentCommand("asyncapi", "/asyncapi.json", "Print the server's NATS interface as AsyncAPI"))
	root.AddCommand(machineCommands()...)
	return root
}

// The groups of the help text.
const (
	groupServer   = "server"
	groupMachines = "machines"
	groupLook     = "look"
)

// group is a command that only holds others. Cobra would print the help and exit with 0 for an unknown one.
func group(use, short string) *cobra.Command {
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
		return usagef("%s has no command %q; did you mean %q?", cmd.CommandPath(), name, near[0])
	}
	return usagef("%s has no command %q", cmd.CommandPath(), name)
}

// arguments demands exactly the named ones.
func arguments(names ...string) cobra.PositionalArgs { return between(len(names), names...) }

// between demands the first least of the named arguments and takes all of them.
func between(least int, names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usagef("%q is one argument too many", args[len(names)])
		}
		return nil
	}
}
