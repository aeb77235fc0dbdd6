package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClusterPasswordsAreNotPrinted(t *testing.T) {
	t.Parallel()
	c := Defaults(Serve)
	c.Cluster = Cluster{Name: "blue", Password: "secret1", Routes: "nats://u:secret2@a:1, nats://b:1"}
	text := c.String()
	require.NotContains(t, text, "secret")
	require.Contains(t, text, "nats://b:1")
}
