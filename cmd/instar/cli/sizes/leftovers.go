package sizes

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// Leftovers lists what moves of tenants have left.
func Leftovers(p *command.Program) *cobra.Command {
	c := command.ClientFlags(&cobra.Command{
		Use: "tenant-leftovers", Short: "What moves of tenants have left in their databases", Args: command.Arguments(), RunE: p.Asking(leftovers),
		Long: "Lists databases, roles, fences, slots and publications that no session is about, and databases that are not there, and says what to do. It changes nothing.",
	})
	c.GroupID = command.GroupLook
	return c
}

func leftovers(s *command.Session, _ *cobra.Command, _ []string) error {
	var page struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := s.JSON(s.Ctx, client.Request{Path: "/v1/tenant-leftovers"}, &page); err != nil {
		return err
	}
	g := output.Grid{Titles: []string{"KIND", "NAME", "ON", "TENANT", "SESSION", "REASON"}}
	for _, raw := range page.Items {
		var v struct{ Kind, Name, On, Tenant, Session, Reason string }
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("the server's leftover is not as expected: %w", err)
		}
		if s.Format == output.Name {
			fmt.Fprintln(s.Out, v.Name)
		}
		g.Add(v.Kind, v.Name, v.On, v.Tenant, v.Session, v.Reason)
	}
	switch {
	case s.Format == output.Name:
		return nil
	case s.Format.Human():
		return g.Write(s.Out)
	}
	return s.Format.List(s.Out, page.Items)
}
