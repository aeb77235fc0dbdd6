package cli

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// ctxCommand is about the servers that have names here.
func ctxCommand() *cobra.Command {
	g := command.Group("ctx", "Contexts: servers by name, to which commands are sent")
	g.GroupID = command.GroupLook
	g.Long = `A context is a server with its token, authority and namespace, under a name. The selected one is asked where neither --server, --context nor
INSTAR_SERVER says otherwise. They are kept in instar/contexts.json in the directory for configurations (XDG_CONFIG_HOME, or ~/.config).`
	ls := &cobra.Command{Use: "ls", Aliases: []string{"list"}, Short: "List contexts; * marks the current one", Args: command.Arguments(), RunE: ctxLs}
	ls.Flags().StringP("output", "o", "table", "table, wide, json, jsonl, yaml or name; never with tokens")
	add := &cobra.Command{
		Use: "add NAME", Short: "Add or change a context; the first one becomes the current one", Args: command.Arguments("NAME"), RunE: ctxAdd,
		Example: "  instar ctx add prod --server https://instar.example.com -n shop\n  INSTAR_TOKEN=... instar ctx add prod --server https://instar.example.com",
	}
	fs := add.Flags()
	fs.String("server", "", "URL of the server")
	fs.String("token", "", "bearer token; better in INSTAR_TOKEN, where other users of the machine do not see it")
	fs.String("ca", "", "file of the certificate authority of the server")
	fs.StringP("namespace", "n", "", "namespace (default: that of the token, or \"default\")")
	use := &cobra.Command{Use: "use NAME", Aliases: []string{"select"}, Short: "Select the current context", Args: command.Arguments("NAME"), ValidArgsFunction: command.CompleteContexts, RunE: changing(func(c *command.Contexts, name string) error {
		c.Current = name
		return nil
	})}
	rm := &cobra.Command{Use: "rm NAME", Short: "Remove a context", Args: command.Arguments("NAME"), ValidArgsFunction: command.CompleteContexts, RunE: changing(func(c *command.Contexts, name string) error {
		delete(c.Contexts, name)
		if c.Current == name {
			c.Current = ""
		}
		return nil
	})}
	g.AddCommand(ls, add, use, rm)
	return g
}

// changing changes what is there about a context that is there.
func changing(change func(*command.Contexts, string) error) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		c, err := command.LoadContexts()
		if err != nil {
			return err
		}
		if _, err := c.Named(args[0]); err != nil {
			return err
		}
		if err := change(c, args[0]); err != nil {
			return err
		}
		return c.Save()
	}
}

func ctxAdd(cmd *cobra.Command, args []string) error {
	text := func(name string) string {
		v, _ := cmd.Flags().GetString(name) // declared above
		return v
	}
	if !command.ContextName.MatchString(args[0]) {
		return command.Usagef("%q is no name of a context: 1 to 63 of letters, digits, dots, dashes and underscores", args[0])
	}
	if text("server") == "" {
		return command.Usagef("--server is missing")
	}
	base, err := command.ServerURL(text("server"))
	if err != nil {
		return err
	}
	if _, err := command.TransportFor(text("ca")); err != nil {
		return err
	}
	c, err := command.LoadContexts()
	if err != nil {
		return err
	}
	p := command.Place{Server: base, Token: text("token"), CA: text("ca"), Namespace: text("namespace")}
	if p.Token == "" {
		p.Token = os.Getenv("INSTAR_TOKEN")
	}
	if c.Contexts[args[0]] = p; c.Current == "" {
		c.Current = args[0]
	}
	return c.Save()
}

func ctxLs(cmd *cobra.Command, _ []string) error {
	text, _ := cmd.Flags().GetString("output") // declared above
	format, err := output.ParseFormat(text)
	if err != nil {
		return command.Usage(err)
	}
	c, err := command.LoadContexts()
	if err != nil {
		return err
	}
	g := output.Grid{Titles: []string{"", "NAME", "SERVER", "NAMESPACE", "TOKEN"}}
	var raws []json.RawMessage
	for _, name := range c.Names() {
		p := c.Contexts[name]
		mark, token := "", "-"
		if name == c.Current {
			mark = "*"
		}
		if p.Token != "" {
			token = "yes"
		}
		g.Add(mark, name, p.Server, p.Namespace, token)
		raw, err := json.Marshal(map[string]any{"name": name, "server": p.Server, "namespace": p.Namespace, "ca": p.CA, "token": p.Token != "", "current": name == c.Current})
		if err != nil {
			return err
		}
		raws = append(raws, raw)
	}
	out := cmd.OutOrStdout()
	switch {
	case format == output.Name:
		for _, name := range c.Names() {
			fmt.Fprintln(out, name)
		}
		return nil
	case format.Human() && len(raws) == 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "There are no contexts: --server, INSTAR_SERVER or http://127.0.0.1:8080 is used.")
		return nil
	case format.Human():
		return g.Write(out)
	}
	return format.List(out, raws)
}
