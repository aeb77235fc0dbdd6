package main

import (
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// documentCommand prints a description that the server gives of itself.
func documentCommand(use, path, short string) *cobra.Command {
	return clientFlags(&cobra.Command{Use: use, Short: short, GroupID: groupLook, Args: arguments(), RunE: asking(func(s *session, _ *cobra.Command, _ []string) error {
		resp, err := s.Do(s.ctx, client.Request{Path: path})
		if err != nil {
			return err
		}
		format := s.format
		if format != output.YAML && format != output.JSONL {
			format = output.JSON
		}
		return format.Value(s.out, resp.Body)
	})})
}
