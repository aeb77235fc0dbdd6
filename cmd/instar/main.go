// Command instar runs durable state machines on NATS JetStream, and talks to a server that does.
package main

import (
	"os"

	"github.com/bcc94042/instar/cmd/instar/cli"
	"github.com/bcc94042/instar/internal/gctune"
	"github.com/bcc94042/instar/server/build"
	"github.com/bcc94042/instar/server/builtin"
)

// Set by -ldflags "-X main.version=…"; without them the build information of the Go toolchain tells.
var version, commit, date string

func main() {
	gctune.Keep()
	gctune.Limit()
	options := builtin.Options()
	options.Build = build.Info{Version: version, Commit: commit, Date: date}
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, options))
}
