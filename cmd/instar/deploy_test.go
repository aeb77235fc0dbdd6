package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams/embedded"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	require.NoError(t, err)
	return string(text)
}

func serverFlagSet(t *testing.T, mode string, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet(mode, pflag.ContinueOnError)
	config.Flags(fs, mode)
	require.NoError(t, fs.Parse(args))
	return fs
}

func TestComposeRunsWhatTheProgramTakes(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command     []string
			Healthcheck struct{ Test []string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, "compose.yaml")), &compose))
	command := compose.Services["instar"].Command
	require.Equal(t, config.Serve, command[0])
	cfg, err := config.Load(config.Serve, serverFlagSet(t, config.Serve, command[1:]...), nil)
	require.NoError(t, err)
	require.Contains(t, cfg.HTTP.AllowedHosts(), "instar", "other services of the file find it by its name, and no page of another site does by its own")
	require.Zero(t, execute(append(compose.Services["instar"].Healthcheck.Test[2:], "--help"), nil, io.Discard, io.Discard))
}

func TestUnitStartsWhatTheProgramTakes(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "instar.service")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/instar serve (.*)$`).FindStringSubmatch(unit)
	require.NotNil(t, start)
	serverFlagSet(t, config.Serve, strings.Fields(start[1])...)
	require.Contains(t, unit, "\nKillMode=process\n", "services outlive the control plane")
}

// What the pages tell operators to configure works under the unit, without more.
func TestUnitLetsTheServerDoWhatIsConfigured(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "instar.service")
	require.Contains(t, unit, "\nCapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n", "domains.https is :443, as the user of the unit")
	require.Regexp(t, `(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b`, unit, "it has to know which addresses this host has")
	require.NotRegexp(t, `(?m)^RemoveIPC=(yes|true|on|1)$`, unit, "services outlive the control plane with what they share")
}

// The commands of the page fill the directory that the unit serves, as its user: a restore into another place succeeds, and the server comes up empty.
func TestThePageRestoresWhatTheUnitServes(t *testing.T) {
	t.Parallel()
	settings := write(t, "instar.yaml", deployed(t, "instar.yaml"))
	data := func(mode, args string) string {
		c, err := config.Load(mode, serverFlagSet(t, mode, strings.Fields(strings.ReplaceAll(args, "/etc/instar/instar.yaml", settings))...), nil)
		require.NoError(t, err)
		return c.Data
	}
	unit := deployed(t, "instar.service")
	of := func(key string) string {
		found := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
		require.NotNil(t, found, key)
		return found[1]
	}
	serves := data(config.Serve, strings.TrimPrefix(of("ExecStart"), "/usr/local/bin/instar serve "))
	dirs := strings.Fields(of("StateDirectory"))
	require.Equal(t, "/var/lib/"+dirs[0], serves)
	require.Equal(t, "TMPDIR=/var/lib/"+dirs[1], of("Environment"), "the server, too, has a place for what it tries")
	require.Equal(t, "0", of("StartLimitIntervalSec"), "what keeps it from starting may pass")
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operations.md"))
	require.NoError(t, err)
	_, page, _ = bytes.Cut(page, []byte("\n## Backup\n"))
	page, _, _ = bytes.Cut(page, []byte("\n## "))
	typed := regexp.MustCompile(`(?m)^(.*)\binstar restore (\S+) (--[^<#\n]*)`).FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, typed)
	for _, command := range typed {
		require.Equal(t, "runuser -u "+of("User")+" -- ", command[1])
		require.Equal(t, serves, data(config.Serve, command[3]), command[0])
	}
}

// What a power loss may cost is told in the same words by the banner, /readyz and the documents.
func TestDocumentsSayWhatIntervalSurvives(t *testing.T) {
	t.Parallel()
	says := "interval: survives " + embedded.Interval.Survives()
	for _, file := range []string{"README.md", "docs/operations.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		require.NoError(t, err)
		require.Contains(t, string(text), says, file)
	}
}

// Nothing of another image is in the one that runs, but certificates, and whoever runs it is not root.
func TestTheImageHasNothingBesideTheProgram(t *testing.T) {
	t.Parallel()
	build, image, ok := strings.Cut(deployed(t, "Dockerfile"), "\nFROM scratch\n")
	require.True(t, ok)
	require.Contains(t, build, "\nARG GO=golang:1.26\nFROM ${GO} AS build\n", "it can be named by its digest")
	require.Contains(t, build, "CGO_ENABLED=0 go build -trimpath ")
	require.NotContains(t, image, "RUN ")
	require.NotContains(t, image, "FROM ")
	require.Regexp(t, `(?m)^USER [1-9]`, image)
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
