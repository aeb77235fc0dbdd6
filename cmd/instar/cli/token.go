package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/config"
)

// tokenCommand makes a token; the server knows only its hash, so it is shown once.
func tokenCommand() *cobra.Command {
	t := config.Token{}
	cmd := &cobra.Command{
		Use: "token NAME", Short: "Generate a bearer token and its configuration", GroupID: command.GroupServer, Args: command.Arguments("NAME"),
		Example: "  instar token ci --role operate --namespace default",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{config.RoleRead, config.RoleOperate, config.RoleAdmin}, t.Role) {
				return command.Usagef("--role: %q is none of read, operate, admin", t.Role)
			}
			secret := "instar_" + rand.Text()
			sum := sha256.Sum256([]byte(secret))
			fmt.Fprintln(cmd.OutOrStdout(), secret)
			fmt.Fprintf(cmd.ErrOrStderr(), "It is not shown again. Add this to the server's configuration:\n\nauth:\n  tokens:\n    - name: %s\n      hash: sha256:%s\n      role: %s\n", args[0], hex.EncodeToString(sum[:]), t.Role)
			if t.Namespace != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "      namespace: %s\n", t.Namespace)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&t.Role, "role", config.RoleOperate, "read, operate or admin")
	cmd.Flags().StringVar(&t.Namespace, "namespace", "", "the only namespace that it is for; empty is all")
	return cmd
}
