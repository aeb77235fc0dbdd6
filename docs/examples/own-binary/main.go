// Command lamps is Instar with a machine of its own beside those that ship: the example of docs/your-own-binary.md.
package main

import (
	"os"

	"github.com/bcc94042/instar/cmd/instar/cli"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/builtin"
)

func main() {
	options := builtin.Options()
	options.Machines = append(options.Machines, Lamp)
	options.Providers[Lamp.Name] = server.Performs(Bulbs{})
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, options))
}
