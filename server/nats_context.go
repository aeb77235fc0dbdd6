package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/bcc94042/instar/internal/ownfile"
)

// NatsContext connects by a context of the nats CLI; nil when none is named.
func NatsContext(name string) func(...nats.Option) (*nats.Conn, error) {
	if name == "" {
		return nil
	}
	return func(opts ...nats.Option) (*nats.Conn, error) {
		nc, s, err := natscontext.Connect(name, opts...)
		if err != nil {
			return nil, fmt.Errorf("context %q of the nats CLI: %w", name, err)
		}
		if s.JSDomain != "" || s.JSAPIPrefix != "" {
			nc.Close()
			return nil, fmt.Errorf("context %q of the nats CLI leads to the JetStream of another domain or account, which is not supported", name)
		}
		return nc, nil
	}
}

// writtenContext is the description of contexts that are written here: others are not touched.
const writtenContext = "Written by Instar"

// writeNATSContext gives the embedded server a name for the nats CLI, if the configuration has one. The file holds what the
// program itself connects with, for its owner only.
func (a *app) writeNATSContext(context.Context) error {
	name := a.cfg.NATS.Write
	if name == "" {
		if user, _ := a.server.Credentials(); user != "" && len(a.cfg.NATS.Users) == 0 {
			a.log.Info("the NATS listener takes connections of this program only; nats.users lets others in, and --write-nats-context the nats CLI of this account", "nats", a.server.ClientURL())
		}
		return nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return fmt.Errorf("cannot find the directory of the contexts of the nats CLI: %w", err)
	}
	at := filepath.Join(dir, "nats", "context", name+".json")
	var had struct {
		Description string `json:"description"`
	}
	raw, err := os.ReadFile(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("cannot write a context of the nats CLI: %w", err)
	case len(raw) == 0: // what a crash left of one; a context of somebody has content
	case json.Unmarshal(raw, &had) != nil || had.Description != writtenContext:
		return fmt.Errorf("the nats CLI has a context %q already, which was not written here (%s): choose another name", name, at)
	}
	user, password := a.server.Credentials()
	raw, err = json.MarshalIndent(map[string]string{"description": writtenContext, "url": a.server.ClientURL(), "user": user, "password": password}, "", "  ")
	if err == nil {
		err = ownfile.Replace(at, append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write a context of the nats CLI: %w", err)
	}
	return nil
}
