package rig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams/embedded"
)

// serverVerb is the first argument with which this program is a NATS server.
const serverVerb = "nats-server"

// ServeNATS runs a NATS server when this process was started to be one, and reports whether it was.
func ServeNATS(args []string) bool {
	if len(args) != 4 || args[0] != serverVerb {
		return false
	}
	s, err := embedded.Start(embedded.Options{
		Dir: args[1], Listen: args[2], Open: true, Profile: embedded.Profile(args[3]), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	<-end
	if err := s.Shutdown(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// Self runs this program again, with other arguments; what it says is appended to a file.
func Self(log string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	return start(log, nil, self, args...)
}

// NATS is a NATS server in a process of its own.
type NATS struct {
	Dir     string
	Listen  string
	Profile string
	*Process
}

// NewNATS picks a port for a server with its data in dir.
func NewNATS(dir, profile string) (*NATS, error) {
	listen, err := Port()
	return &NATS{Dir: dir, Listen: listen, Profile: profile}, err
}

// URL is where clients connect.
func (n *NATS) URL() string { return "nats://" + n.Listen }

// Start runs the server and waits until it answers.
func (n *NATS) Start(ctx context.Context) error {
	var err error
	if n.Process, err = Self(n.Dir+".log", serverVerb, n.Dir, n.Listen, n.Profile); err != nil {
		return err
	}
	err = Until(ctx, 20*time.Second, "the NATS server answers", func() bool {
		nc, err := nats.Connect(n.URL(), nats.NoReconnect(), nats.Timeout(time.Second))
		if err == nil {
			nc.Close()
		}
		return err == nil || !n.Running()
	})
	if err == nil && !n.Running() {
		err = fmt.Errorf("the NATS server ended: %s", tail(n.Dir+".log"))
	}
	return err
}
