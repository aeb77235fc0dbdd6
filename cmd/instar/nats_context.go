package main

import (
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// natsContext connects by a context of the nats CLI; nil when none is named.
func natsContext(name string) func(...nats.Option) (*nats.Conn, error) {
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
