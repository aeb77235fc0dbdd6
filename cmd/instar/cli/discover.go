package cli

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/instances"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/cli/entities"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
)

// discoverCommand asks where a service is, as its clients do.
func discoverCommand(p *command.Program) *cobra.Command {
	cmd := command.ClientFlags(&cobra.Command{
		Use: "discover [SERVICE]", Short: "Find the instances of a service as its clients see them", Args: command.Between(0, "SERVICE"), ValidArgsFunction: completeServices(p), GroupID: command.GroupLook, RunE: p.Asking(discover),
		Long: "Shows the instances that may receive traffic now, with their weights. Without an argument it lists the services. For instances in all states use instar instance ls.",
		Example: `  instar discover web
  instar discover web --watch
  instar discover web --zone north --tag canary
  instar discover web --choose 1 --key user-7
  instar discover web --at 2026-11-20T12:00:00Z`,
	})
	fs := cmd.Flags()
	fs.BoolP("watch", "w", false, "show every change as it happens")
	fs.Bool("draining", false, "also those that end")
	fs.String("zone", "", "only of this zone")
	fs.String("prefer", "", "of this zone, and of others only when it has none")
	fs.String("with-version", "", "only of this version")
	fs.StringArray("tag", nil, "only with this tag (repeatable; all must be there)")
	fs.StringArray("meta", nil, "only with this in the payload: k=v (repeatable; all must hold)")
	fs.Int("choose", 0, "so many, by weight")
	fs.String("key", "", "with --choose: always the same ones for the same key")
	fs.String("at", "", "as it was then: a time of RFC 3339, or a sequence of the stream of events")
	return cmd
}

func discover(s *command.Session, cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return discoverServices(s)
	}
	if !machines.IsLabel(args[0]) {
		return command.Usagef("%q is no name of a service: 1 to 63 of a-z, 0-9 and inner hyphens", args[0])
	}
	fs := cmd.Flags()
	query := s.Scoped(nil)
	for flag, param := range map[string]string{"zone": "zone", "prefer": "prefer", "with-version": "version", "key": "key", "at": "at"} {
		if v, _ := fs.GetString(flag); v != "" {
			query.Set(param, v)
		}
	}
	for _, flag := range []string{"tag", "meta"} {
		if all, _ := fs.GetStringArray(flag); len(all) > 0 {
			query[flag] = all
		}
	}
	if draining, _ := fs.GetBool("draining"); draining {
		query.Set("include", "draining")
	}
	if n, _ := fs.GetInt("choose"); fs.Changed("choose") {
		query.Set("choose", strconv.Itoa(n))
	}
	if follow, _ := fs.GetBool("watch"); follow {
		if query.Has("choose") || query.Has("at") {
			return command.Usagef("--watch goes without --choose and --at")
		}
		return discoverWatch(s, args[0], query)
	}
	return discoverOnce(s, args[0], query)
}

// discovered is an answer of the server.
type discovered struct {
	Service   string               `json:"service"`
	Protected bool                 `json:"protected"`
	Stale     float64              `json:"staleSeconds"`
	AsOf      *discovery.AsOf      `json:"asOf"`
	Instances []discovery.Endpoint `json:"instances"`
}

func discoverOnce(s *command.Session, service string, query url.Values) error {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/discover/" + service, Query: query})
	if err != nil {
		return err
	}
	var d discovered
	if err := json.Unmarshal(resp.Body, &d); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	switch {
	case s.Format == output.Name:
		for _, e := range d.Instances {
			fmt.Fprintln(s.Out, discovery.Machine+"/"+service+"/"+e.InstanceID)
		}
		return nil
	case !s.Format.Human():
		return s.Format.Value(s.Out, resp.Body)
	}
	if d.AsOf != nil {
		s.Say("As of %s, after event %[3]d (%[2]d events).", d.AsOf.Time.Local().Format(time.RFC3339), d.AsOf.Events, d.AsOf.Sequence)
	}
	if d.Protected {
		s.Say("%s is in self-preservation: instances shown may be gone.", service)
	}
	if d.Stale > 0 {
		s.Say("The node cannot reach the others: this is its state of %s ago.", command.StaleFor(d.Stale))
	}
	if len(d.Instances) == 0 {
		s.Say("%s has no instances for traffic.", service)
		return nil
	}
	return endpoints(s, d.Instances)
}

func endpoints(s *command.Session, all []discovery.Endpoint) error {
	g := output.Grid{Titles: []string{"ID", "ADDRESS", "WEIGHT", "ZONE", "VERSION", "STATE", "SINCE"}, Paint: func(column, text string) string {
		if column == "STATE" {
			return paintInstance(s, text)
		}
		return text
	}}
	wide := s.Format == output.Wide
	if wide {
		g.Titles = append(g.Titles, "GENERATION", "TAGS", "PAYLOAD")
	}
	now := time.Now()
	for _, e := range all {
		row := []string{e.InstanceID, e.NodeAddress, strconv.Itoa(e.Weight), e.Zone, e.Version, e.State, output.Age(e.Since, now)}
		if wide {
			row = append(row, strconv.FormatUint(e.Generation, 10), strings.Join(e.Tags, ","), output.Pairs(e.Payload))
		}
		g.Add(row...)
	}
	return g.Write(s.Out)
}

// discoverWatch shows what is there and then every change, until it is interrupted.
func discoverWatch(s *command.Session, service string, query url.Values) error {
	w := client.Watching{Path: "/v1/discover/" + service + "/watch", Query: query}
	w.Lost = func(err error, in time.Duration) { s.Say("%v; trying again in %s", err, in) }
	protected, stale := false, false
	w.Each = func(ev client.Event) error {
		if ev.Name != "snapshot" && ev.Name != "delta" && ev.Name != "stale" {
			return nil
		}
		if !s.Format.Human() && s.Format != output.Name {
			return s.Format.Value(s.Out, ev.Data)
		}
		var d struct {
			discovered
			Put    []discovery.Endpoint `json:"put"`
			Remove []string             `json:"remove"`
		}
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return fmt.Errorf("the server's watch is not as expected: %w", err)
		}
		if ev.Name != "delta" && (d.Stale > 0) != stale {
			if stale = d.Stale > 0; stale {
				s.Say("The node cannot reach the others: what was shown is its state of %s ago.", command.StaleFor(d.Stale))
			} else {
				s.Say("The node reaches the others again.")
			}
		}
		if ev.Name != "stale" && d.Protected != protected {
			protected = d.Protected
			s.Say("%s %s.", service, map[bool]string{true: "is in self-preservation: instances shown may be gone", false: "has left self-preservation"}[protected])
		}
		for _, e := range append(d.Instances, d.Put...) {
			endpointLine(s, "+", e.InstanceID, fmt.Sprintf("%-21s weight %-5d %s", e.NodeAddress, e.Weight, paintInstance(s, e.State)))
		}
		for _, id := range d.Remove {
			endpointLine(s, "-", id, "")
		}
		return nil
	}
	return s.UntilUnread(func() error { return s.Watch(s.Ctx, w) })
}

func endpointLine(s *command.Session, sign, id, rest string) {
	if s.Format == output.Name {
		fmt.Fprintln(s.Out, sign, id)
		return
	}
	fmt.Fprintln(s.Out, strings.TrimRight(fmt.Sprintf("%s  %s %-36s  %s", time.Now().Format(time.TimeOnly), sign, output.Line(id), rest), " "))
}

func discoverServices(s *command.Session) error {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/v1/discover", Query: s.Scoped(nil)})
	if err != nil {
		return err
	}
	var list struct {
		Services []discovery.Summary `json:"services"`
	}
	if err := json.Unmarshal(resp.Body, &list); err != nil {
		return fmt.Errorf("the server's answer is not as expected: %w", err)
	}
	switch {
	case s.Format == output.Name:
		for _, sum := range list.Services {
			fmt.Fprintln(s.Out, sum.Service)
		}
		return nil
	case !s.Format.Human():
		return s.Format.Value(s.Out, resp.Body)
	case len(list.Services) == 0:
		s.Say("No service has instances here.")
		return nil
	}
	g := output.Grid{Titles: []string{"SERVICE", "FOUND", "DRAINING", "INSTANCES", "PROTECTED"}}
	for _, sum := range list.Services {
		g.Add(sum.Service, strconv.Itoa(sum.Found), strconv.Itoa(sum.Draining), strconv.Itoa(sum.Instances), map[bool]string{true: "yes", false: "no"}[sum.Protected])
	}
	return g.Write(s.Out)
}

// completeServices offers the services that have instances.
func completeServices(p *command.Program) entities.Completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var list instances.DiscoveredServices
		if len(args) > 0 || !p.Asked(cmd, "/v1/discover", nil, &list) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, s := range list.Services {
			names = append(names, s.Service)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// paintInstance colours the state of an instance.
func paintInstance(s *command.Session, state string) string {
	m, err := s.Program.Machine(discovery.Machine)
	if err != nil { // the server has it, and this program has not
		return state
	}
	return entities.PaintState(s, m.States, state)
}
