package entities

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// genericStored shows a stored value, such as one that is to be repaired.
func genericStored(p *command.Program) *cobra.Command {
	return &cobra.Command{
		Use: "stored MACHINE ID", Short: "Print the stored value of an entity, also of a parked one", Args: command.Arguments("MACHINE", "ID"),
		Example: "  instar entity stored service web > web.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, s, err := machineAndServer(p, cmd, args[0])
			if err != nil {
				return err
			}
			stored, err := storedValue(s, m, args[1])
			if err != nil {
				return err
			}
			if stored.Problem != "" {
				fmt.Fprintf(s.Err, "parked: %s\n", stored.Problem)
			}
			if stored.Value == nil {
				raw, err := base64.StdEncoding.DecodeString(stored.Base64)
				if err == nil {
					_, err = s.Out.Write(raw)
				}
				return err
			}
			return output.JSON.Value(s.Out, stored.Value)
		},
	}
}

// genericRepair replaces the stored value of a parked entity.
func genericRepair(p *command.Program) *cobra.Command {
	o := &sending{}
	cmd := &cobra.Command{
		Use: "repair MACHINE ID", Short: "Replace the unreadable value of a parked entity", Args: command.Arguments("MACHINE", "ID"),
		Long:    "Replaces the stored value of a parked entity, whole. The old one is kept in the event entity.reconciled, with who replaced it and why (--reason).",
		Example: "  instar entity stored service web > web.json\n  instar entity repair service web --file web.json --reason 'state renamed by hand'",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, s, err := machineAndServer(p, cmd, args[0])
			if err != nil {
				return err
			}
			value, err := form.Text(o.file, s.In)
			if err != nil {
				return err
			}
			if !json.Valid(value) {
				return command.Usagef("%s is not JSON", o.file)
			}
			stored, err := storedValue(s, m, args[1])
			if err != nil {
				return err
			}
			body, err := json.Marshal(machines.Repair{Revision: stored.Revision, Value: value})
			if err != nil {
				return err
			}
			return send(s, m, machines.Command{Name: machines.CommandRepair, Destructive: true}, args[1], body, o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.file, "file", "f", "", "file with the whole value, JSON; - is standard input")
	fs.StringVar(&o.reason, "reason", "", "why; kept with the old value")
	fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	_ = cmd.MarkFlagRequired("file") // it is declared
	return cmd
}

func machineAndServer(p *command.Program, cmd *cobra.Command, name string) (*machines.Machine, *command.Session, error) {
	s, err := p.Open(cmd)
	if err != nil {
		return nil, nil, err
	}
	m, err := machineOf(s, name)
	return m, s, err
}

func storedValue(s *command.Session, m *machines.Machine, id string) (*api.StoredValue, error) {
	resp, err := askAbout(s, m, id, "/stored-value", nil)
	if err != nil {
		return nil, err
	}
	stored := new(api.StoredValue)
	if err := json.Unmarshal(resp.Body, stored); err != nil {
		return nil, fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	return stored, nil
}
