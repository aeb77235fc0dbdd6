package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// nodeCommand is about the processes that share the work.
func nodeCommand(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("node", "Nodes: show, cordon and drain them"))
	g.GroupID = command.GroupLook
	drain := nodeWish(p, "drain", "draining", "Move everything away from one, which then serves the API only, until it is uncordoned")
	drain.Flags().Duration("timeout", 30*time.Second, "wait at most so long until it has given everything away; 0 does not wait")
	g.AddCommand(
		&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List them", Args: command.Arguments(), RunE: p.Asking(nodeLs)},
		&cobra.Command{Use: "show NAME", Short: "Show a node with its partitions", Args: command.Arguments("NAME"), RunE: p.Asking(nodeShow)},
		drain,
		nodeWish(p, "cordon", "cordoned", "Let one keep what it has and take nothing"),
		nodeWish(p, "uncordon", "live", "Let one take its share again"),
	)
	return g
}

// clusterNode is a node as the API shows it.
type clusterNode struct {
	Name       string    `json:"name"`
	State      string    `json:"state"`
	Want       string    `json:"want"`
	Started    time.Time `json:"started"`
	Version    string    `json:"version"`
	URL        string    `json:"url"`
	Partitions []int     `json:"partitions"`
	Roles      []string  `json:"roles"`

	raw json.RawMessage
}

func (n *clusterNode) state() string {
	if n.State != n.Want {
		return n.State + " (wanted: " + n.Want + ")"
	}
	return n.State
}

func readNodes(body []byte) ([]clusterNode, error) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	err := json.Unmarshal(body, &list)
	nodes := make([]clusterNode, len(list.Items))
	for i, raw := range list.Items {
		err = errors.Join(err, json.Unmarshal(raw, &nodes[i]))
		nodes[i].raw = raw
	}
	if err != nil {
		return nil, fmt.Errorf("the server's nodes are not as expected: %w", err)
	}
	return nodes, nil
}

func listNodes(s *command.Session, ctx context.Context) ([]clusterNode, error) {
	resp, err := s.Do(ctx, client.Request{Path: "/v1/nodes"})
	if err != nil {
		return nil, err
	}
	return readNodes(resp.Body)
}

func nodeLs(s *command.Session, _ *cobra.Command, _ []string) error {
	list, err := listNodes(s, s.Ctx)
	if err != nil {
		return err
	}
	return printNodes(s, list)
}

func printNodes(s *command.Session, list []clusterNode) error {
	switch {
	case s.Format == output.Name:
		for _, n := range list {
			fmt.Fprintln(s.Out, n.Name)
		}
		return nil
	case s.Format.Human():
		g := output.Grid{Titles: []string{"NODE", "STATE", "PARTITIONS", "ROLES", "AGE", "VERSION", "URL"}}
		for _, n := range list {
			g.Add(n.Name, n.state(), fmt.Sprint(len(n.Partitions)), strings.Join(n.Roles, ","), output.Age(n.Started, time.Now()), n.Version, n.URL)
		}
		return g.Write(s.Out)
	}
	var raws []json.RawMessage
	for _, n := range list {
		raws = append(raws, n.raw)
	}
	return s.Format.List(s.Out, raws)
}

func nodeShow(s *command.Session, _ *cobra.Command, args []string) error {
	list, err := listNodes(s, s.Ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(n clusterNode) bool { return n.Name == args[0] })
	if i < 0 {
		return &command.Error{Code: command.ExitNotFound, Err: fmt.Errorf("there is no node %q", args[0]), Try: "instar node ls"}
	}
	format := s.Format
	if format.Human() {
		format = output.YAML
	}
	return format.Value(s.Out, list[i].raw)
}

// nodeWish is a command that tells a node what is wanted of it.
func nodeWish(p *command.Program, verb, state, short string) *cobra.Command {
	return &cobra.Command{Use: verb + " NAME", Short: short, Args: command.Arguments("NAME"), RunE: p.Asking(func(s *command.Session, cmd *cobra.Command, args []string) error {
		if !machines.IsLabel(args[0]) {
			return command.Usagef("%q is no name of a node", args[0])
		}
		if _, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: "/v1/nodes/" + args[0] + "/" + verb}); err != nil {
			return command.Try(err, "instar node ls")
		}
		most := 5 * time.Second
		if cmd.Flags().Lookup("timeout") != nil {
			most, _ = cmd.Flags().GetDuration("timeout") // declared by nodeCommand
		}
		if most <= 0 {
			return nil
		}
		n, err := awaitNode(s, args[0], state, most)
		if err != nil {
			return err
		}
		return printNodes(s, []clusterNode{n})
	})}
}

// awaitNode waits until a node is as wanted, and has given everything away if that is meant.
func awaitNode(s *command.Session, name, state string, most time.Duration) (clusterNode, error) {
	ctx, cancel := context.WithTimeout(s.Ctx, most)
	defer cancel()
	for {
		list, err := listNodes(s, ctx)
		if err == nil {
			i := slices.IndexFunc(list, func(n clusterNode) bool { return n.Name == name })
			if i < 0 { // it is not running; it will be so when it starts
				s.Say("%s is not running; it will be %s when it starts", name, state)
				return clusterNode{Name: name, State: "(not running)", Want: state}, nil
			}
			if n := list[i]; n.State == state && (state != "draining" || len(n.Partitions)+len(n.Roles) == 0) {
				return n, nil
			}
		}
		select {
		case <-ctx.Done():
			return clusterNode{}, &command.Error{Code: command.ExitTimeout, Err: fmt.Errorf("%s is not %s after %s; it goes on", name, state, most), Try: "instar node ls"}
		case <-time.After(100 * time.Millisecond):
		}
	}
}
