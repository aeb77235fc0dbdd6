package cli

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// whyCommand asks whoever schedules tasks why one does not start.
func whyCommand(p *command.Program) *cobra.Command {
	return command.ClientFlags(&cobra.Command{
		Use: "why [REPOSITORY/]TASK", Short: "Say why a task does not start", Args: command.Arguments("[REPOSITORY/]TASK"), GroupID: command.GroupLook, RunE: p.Asking(why),
		Long:    "Says what is against the start of a queued task now: its time, a task that it runs after, its unique key, a pause, a pool for which no worker asks, a limit or a rate.",
		Example: "  instar why shop/lint",
	})
}

func why(s *command.Session, _ *cobra.Command, args []string) error {
	repository, id, named := command.Below(args[0])
	query := url.Values{}
	if !named {
		id = repository
	} else {
		query.Set("repository", repository)
	}
	if !machines.IsLabel(id) || !machines.IsLabel(repository) {
		return command.Usagef("%q is no name of a task: REPOSITORY/TASK, each 1 to 63 of a-z, 0-9 and inner hyphens", args[0])
	}
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/tasks/" + id + "/why", Query: s.Scoped(query)})
	if command.CodeOf(err) == command.ExitNotFound {
		return command.Try(err, "instar task ls")
	}
	if err != nil {
		return err
	}
	if s.Format != output.Table {
		return s.Format.Value(s.Out, resp.Body)
	}
	var w struct {
		JobID string `json:"job_id"`
		State string `json:"state"`
		Why   string `json:"why"`
	}
	if err := json.Unmarshal(resp.Body, &w); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s (%s): %s\n", w.JobID, w.State, w.Why)
	return err
}
