// Package sizes has the commands about all tenants' databases (server/tenants): which servers get new ones, and what moves have left there.
package sizes

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

const path = "/v1/tenant-sizes"

// Command is about all sizes.
func Command(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("tenant-size", "Sizes of tenants' databases: which servers get new ones"))
	g.GroupID = command.GroupLook
	set := &cobra.Command{
		Use: "set SIZE [REGION=SERVER[,SERVER]...]", Short: "Set which servers get databases of a size", Args: sizeArguments, RunE: p.Asking(setSize),
		Long:    "It is for sessions that are planned from now on; databases that are there stay where they are. Without a region, requests of the size are refused. What the configuration says of the size does not change it any more, until --reset.",
		Example: "  instar tenant-size set small default=t1,t2 eu=t3\n  instar tenant-size set small --reset",
	}
	set.Flags().Bool("reset", false, "what the configuration says, from now on")
	set.Flags().String("if-match", "", "only if the size is at this revision")
	g.AddCommand(&cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List the sizes", Args: command.Arguments(), RunE: p.Asking(list)}, set)
	return g
}

func sizeArguments(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return command.Usagef("SIZE is missing")
	}
	return nil
}

// size is one, as the server shows it.
type size struct {
	Name     string              `json:"name"`
	Regions  map[string][]string `json:"regions"`
	Set      bool                `json:"set"`
	Revision uint64              `json:"revision"`

	raw json.RawMessage
}

func read(raw json.RawMessage) (size, error) {
	v := size{raw: raw}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("the server's size is not as expected: %w", err)
	}
	return v, nil
}

func list(s *command.Session, _ *cobra.Command, _ []string) error {
	var page struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := s.JSON(s.Ctx, client.Request{Path: path}, &page); err != nil {
		return err
	}
	return show(s, page.Items)
}

// show writes sizes, a line for each region of one.
func show(s *command.Session, raws []json.RawMessage) error {
	g := output.Grid{Titles: []string{"SIZE", "REGION", "SERVERS", "SET", "REVISION"}}
	for _, raw := range raws {
		v, err := read(raw)
		if err != nil {
			return err
		}
		if s.Format == output.Name {
			fmt.Fprintln(s.Out, v.Name)
		}
		regions := slices.Sorted(maps.Keys(v.Regions))
		if len(regions) == 0 {
			regions = []string{""}
		}
		for _, region := range regions {
			g.Add(v.Name, region, strings.Join(v.Regions[region], ","), fmt.Sprint(v.Set), fmt.Sprint(v.Revision))
		}
	}
	switch {
	case s.Format == output.Name:
		return nil
	case s.Format.Human():
		return g.Write(s.Out)
	}
	return s.Format.List(s.Out, raws)
}

func setSize(s *command.Session, cmd *cobra.Command, args []string) error {
	reset, _ := cmd.Flags().GetBool("reset") // declared above
	match, _ := cmd.Flags().GetString("if-match")
	if reset && len(args) > 1 {
		return command.Usagef("--reset takes no regions")
	}
	body := struct {
		Regions map[string][]string `json:"regions,omitempty"`
		Reset   bool                `json:"reset,omitempty"`
	}{map[string][]string{}, reset}
	for _, arg := range args[1:] {
		region, servers, ok := strings.Cut(arg, "=")
		if !ok || region == "" || servers == "" {
			return command.Usagef("%q is no REGION=SERVER[,SERVER]", arg)
		}
		body.Regions[region] = append(body.Regions[region], strings.Split(servers, ",")...)
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	header := http.Header{}
	if match != "" {
		header.Set("If-Match", `"`+strings.Trim(match, `"`)+`"`)
	}
	resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPut, Path: path + "/" + url.PathEscape(args[0]), Header: header, Body: raw})
	if err != nil {
		return err
	}
	return show(s, []json.RawMessage{resp.Body})
}
