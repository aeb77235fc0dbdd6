package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestExampleConfigHasTheDefaults(t *testing.T) {
	t.Parallel()
	text := exampleConfig(t)
	got, err := Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "instar.yaml", text)), nil)
	require.NoError(t, err)
	want := Defaults(Serve)
	want.Data = "/var/lib/instar" // relative to where it is started, the default would be a place for each command
	require.Equal(t, want.String(), got.String())

	var doc map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &doc))
	for _, o := range options {
		var at any = doc
		for _, step := range strings.Split(o.key, ".") {
			m, _ := at.(map[string]any)
			require.Contains(t, m, step, o.key)
			at = m[step]
		}
	}
}

func TestExamplesInTheExampleConfig(t *testing.T) {
	t.Parallel()
	example := regexp.MustCompile(`(?m)^( *)#([^ \n]|  )`) // a comment has a single space
	text := example.ReplaceAllString(exampleConfig(t), "$1$2")
	c, err := Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "instar.yaml", text)), nil)
	require.NoError(t, err)
	require.Len(t, c.Auth.Tokens, 1)
	require.Len(t, c.NATS.Users, 2)
	require.Equal(t, Template{
		Command: []string{"sh", "-c", `exec python3 -m http.server --bind 127.0.0.1 "$PORT"`}, Dir: "/srv/web", Socket: "port", Env: map[string]string{"PYTHONUNBUFFERED": "1"},
	}, c.Gateways.Process.Templates["web"])
	require.Equal(t, map[string]Program{"words": {Path: "/usr/bin/wc", Args: []string{"-w"}, Arguments: true}}, c.Tasks.Programs)
	require.Equal(t, []string{"/var"}, c.Tasks.Local)
	require.Len(t, c.Tasks.Credentials, 1)
	require.Equal(t, []OutboxSource{{Name: "orders", DSN: "postgres://relay@db/orders", Mode: "log", Shards: 4}}, c.Outbox.Sources)
}

func exampleConfig(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "instar.yaml"))
	require.NoError(t, err)
	return string(text)
}
