// Command instar runs durable state machines on NATS JetStream, and talks to a server that does.
package main

import (
	"os"

	"github.com/bcc94042/instar/internal/room"
)

func main() {
	room.Keep()
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
