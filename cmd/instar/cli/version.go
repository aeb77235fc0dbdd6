package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

func versionCommand(p *command.Program) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", GroupID: command.GroupLook, Args: command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := p.Build.Filled()
			switch output {
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			case "table":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "instar %s (%s, %s/%s, nats-server %s)\n", b.Version, b.Go, b.OS, b.Arch, b.NATS)
				return err
			}
			return command.Usagef("-o: %q is neither table nor json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
