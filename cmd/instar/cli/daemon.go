package cli

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

func devCommand(p *command.Program) *cobra.Command {
	cmd := daemon(p, config.Dev, "Start a server to try things out: nothing to configure, on loopback")
	cmd.Long = `Starts the control plane with an embedded NATS server on loopback and its data under ./data. Nothing has to be set
up. It is the same program as serve with defaults for one's own machine: a power loss may cost the last 100 ms, and
what was written while the disk synced.

Every flag can also be set in the environment and in a file; flags win over environment over file over defaults.`
	cmd.Example = "  instar dev\n  instar dev --data /tmp/try --http 127.0.0.1:9090"
	return cmd
}

func serveCommand(p *command.Program) *cobra.Command {
	cmd := daemon(p, config.Serve, "Start a server")
	cmd.Long = `Starts the control plane with an embedded NATS server, or attached to yours with --nats-url. An accepted command
survives a power loss. It refuses to listen beyond loopback without tokens and TLS.

Every flag can also be set in the environment and in a file; flags win over environment over file over defaults.`
	cmd.Example = "  instar serve --config /etc/instar/instar.yaml\n  instar serve --nats-url nats://nats:4222 --nats-creds instar.creds"
	return cmd
}

func daemon(p *command.Program, mode, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: mode, Short: short, GroupID: command.GroupServer, Args: command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(mode, cmd.Flags(), os.Environ())
			if err = errors.Join(err, p.Validate(cfg)); err != nil {
				return command.Usage(err)
			}
			return server.Run(cmd.Context(), cfg, p.Options)
		},
	}
	config.Flags(cmd.Flags(), mode)
	return cmd
}
