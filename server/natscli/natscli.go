// Package natscli reads and writes contexts of the nats CLI.
package natscli

import (
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

// Connect connects by a context of the nats CLI; it is nil when none is named.
func Connect(name string) func(...nats.Option) (*nats.Conn, error) {
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

// Write makes or replaces a context for a server, in a file for its owner only. One that was not written here is left alone: that is an error.
func Write(name, url, user, password string) error {
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
	raw, err = json.MarshalIndent(map[string]string{"description": writtenContext, "url": url, "user": user, "password": password}, "", "  ")
	if err == nil {
		err = ownfile.Replace(at, append(raw, '\n'))
	}
	if err != nil {
		return fmt.Errorf("cannot write a context of the nats CLI: %w", err)
	}
	return nil
}
