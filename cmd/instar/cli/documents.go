package cli

import (
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// documentCommand prints a description that the server gives of itself.
func documentCommand(p *command.Program, use, path, short string) *cobra.Command {
	return command.ClientFlags(&cobra.Command{Use: use, Short: short, GroupID: command.GroupLook, Args: command.Arguments(), RunE: p.Asking(func(s *command.Session, _ *cobra.Command, _ []string) error {
		resp, err := s.Do(s.Ctx, client.Request{Path: path})
		if err != nil {
			return err
		}
		format := s.Format
		if format != output.YAML && format != output.JSONL {
			format = output.JSON
		}
		return format.Value(s.Out, resp.Body)
	})})
}
