// Package cli is the command line of a binary that is built on the server: serve and dev, and commands that ask a server, of which those
// of machines come from their tables. [Main] is all that a main function calls.
//
// One file holds one command. Those of machines are in entities, those of outboxes in outboxes, of operations in operations; command is what they share.
package cli

import (
	"context"
	"io"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/audits"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/cli/entities"
	"github.com/bcc94042/instar/cmd/instar/cli/operations"
	"github.com/bcc94042/instar/cmd/instar/cli/outboxes"
	"github.com/bcc94042/instar/cmd/instar/cli/sizes"
	"github.com/bcc94042/instar/cmd/instar/demo"
	"github.com/bcc94042/instar/cmd/instar/demo/platform"
	"github.com/bcc94042/instar/cmd/instar/demo/repositories"
	"github.com/bcc94042/instar/server"
)

// Main runs the command line of a binary with these machines and providers, and returns the exit code: serve and dev run a server, and
// the other commands speak to one. The first interrupt ends the command in an orderly way, a second one ends the process.
//
// args are those after the name of the program. The options' Out is set to stdout.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer, options server.Options) int {
	if len(args) > 0 && options.Programs[args[0]].Run != nil && !(len(args) == 2 && (args[1] == "--help" || args[1] == "-h")) { // it has signals of its own
		return options.Programs[args[0]].Run(args[1:])
	}
	options.Out = stdout
	p := &command.Program{Options: options}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := rootCommand(p)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return command.Report(ctx, stderr, cmd, err)
}

func rootCommand(p *command.Program) *cobra.Command {
	root := command.Group("instar", "Durable state machines for things, on NATS JetStream")
	root.Long = `Instar runs durable state machines for things (services, instances, relays of outboxes) on NATS JetStream.

  instar dev                          start a server here, with nothing to set up
  instar service create web --image hello --wait
  instar service watch

Exit codes: 0 ok, 1 other failures, 2 usage or invalid input, 3 not found, 4 refused (conflict, illegal transition,
precondition), 5 not allowed, 6 not there yet when the wait ended, 7 ended in a failed state, 8 server unreachable,
130 interrupted, 141 nobody reads the output any more.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return command.Usage(err) })
	root.AddGroup(
		&cobra.Group{ID: command.GroupServer, Title: "Server:"},
		&cobra.Group{ID: command.GroupMachines, Title: "Machines:"},
		&cobra.Group{ID: command.GroupLook, Title: "Inspect and repair:"},
	)
	root.AddCommand(devCommand(p), serveCommand(p), backupCommand(p), restoreCommand(p), clusterCommand(), nodeCommand(p), tokenCommand(), entities.Generic(p), entities.Tables(p), discoverCommand(p), deadCommand(p), audits.Command(p), outboxes.Command(p), sizes.Command(p), sizes.Leftovers(p), demos(p), operations.Command(p), whyCommand(p), ctxCommand(), doctorCommand(p), versionCommand(p),
		documentCommand(p, "openapi", "/openapi.json", "Print the server's HTTP interface as OpenAPI"),
		documentCommand(p, "asyncapi", "/asyncapi.json", "Print the server's NATS interface as AsyncAPI"))
	entities.Add(root, p)
	for name, program := range p.Options.Programs {
		if use, short, shown := strings.Cut(program.Doc, ": "); shown {
			root.AddCommand(&cobra.Command{Use: name + " " + use, Short: short, GroupID: command.GroupServer, Run: func(*cobra.Command, []string) {}}) // for the help: Main runs the program
		}
	}
	return root
}

// demos are those of one folder, and those that have folders of their own.
func demos(p *command.Program) *cobra.Command {
	g := demo.Command(p)
	g.AddCommand(append(platform.Commands(), repositories.Commands()...)...)
	return g
}
