package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/server/config"
)

func devCommand() *cobra.Command {
	cmd := daemon(config.Dev, "Start a server for trying things out: nothing to configure, on loopback")
	cmd.Long = `Starts the control plane with an embedded NATS server on loopback and its data under ./data. Nothing has to be set
up. It is the same program as serve with defaults for one's own machine: a power loss may cost the last 100 ms, and
what was written while the disk synced.

Every flag can also be set in the environment and in a file; flags win over environment over file over defaults.`
	cmd.Example = "  instar dev\n  instar dev --data /tmp/try --http 127.0.0.1:9090"
	return cmd
}

func serveCommand() *cobra.Command {
	cmd := daemon(config.Serve, "Start a server")
	cmd.Long = `Starts the control plane with an embedded NATS server, or attached to yours with --nats-url. An accepted command
survives a power loss. It refuses to listen beyond loopback without tokens and TLS.

Every flag can also be set in the environment and in a file; flags win over environment over file over defaults.`
	cmd.Example = "  instar serve --config /etc/instar/instar.yaml\n  instar serve --nats-url nats://nats:4222 --nats-creds instar.creds"
	return cmd
}

func daemon(mode, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: mode, Short: short, GroupID: groupServer, Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(mode, cmd.Flags(), os.Environ())
			if err != nil {
				return usage(err)
			}
			return run(cmd.Context(), cfg, mode, cmd.OutOrStdout())
		},
	}
	config.Flags(cmd.Flags(), mode)
	return cmd
}
