package config

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatTasksMayDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, secret, plain := filepath.Join(dir, "program"), filepath.Join(dir, "secret"), filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	require.NoError(t, os.WriteFile(plain, nil, 0o600))
	require.Empty(t, Defaults(Serve).Tasks.Local, "nothing of the machine")
	require.Empty(t, Defaults(Serve).Tasks.Programs)
	file := filepath.Join(dir, "instar.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
tasks:
  programs:
    lint: {path: `+program+`, args: [--all], arguments: true, env: {TOKEN: s3cret}}
  local: [`+dir+`]
  credentials:
    - {host: "git.example.org:8443", username: bot, passwordFile: `+secret+`}
  clone: {max: 100MiB, timeout: 1m, depth: -1}
  exec: {cpu: 30s, memory: 1GiB, file: 10MiB, output: 64KiB}
`), 0o600))
	c, err := Load(Serve, nil, []string{"INSTAR_CONFIG=" + file})
	require.NoError(t, err)
	require.Equal(t, Program{Path: program, Args: []string{"--all"}, Arguments: true, Env: map[string]string{"TOKEN": "s3cret"}}, c.Tasks.Programs["lint"])
	require.Equal(t, []Credential{{Host: "git.example.org:8443", Username: "bot", PasswordFile: secret}}, c.Tasks.Credentials)
	one, total := c.Tasks.Clone.Sizes()
	require.Equal(t, []int64{100 << 20, 20 << 30}, []int64{one, total})
	memory, most, output := c.Tasks.Exec.Sizes()
	require.Equal(t, []int64{1 << 30, 10 << 20, 64 << 10}, []int64{memory, most, output})
	require.NotContains(t, c.String(), "s3cret")
	require.Equal(t, "s3cret", c.Tasks.Programs["lint"].Env["TOKEN"], "it is the printed copy that has none")
	for want, set := range map[string]func(*Tasks){
		"tasks.programs.a.path":             func(t *Tasks) { t.Programs = map[string]Program{"a": {Path: "program"}} },
		"no program that can be run":        func(t *Tasks) { t.Programs = map[string]Program{"a": {Path: plain}} },
		"tasks.programs: \"A b\"":           func(t *Tasks) { t.Programs = map[string]Program{"A b": {Path: program}} },
		"tasks.local: \"repositories\"":     func(t *Tasks) { t.Local = []string{"repositories"} },
		"tasks.local":                       func(t *Tasks) { t.Local = []string{secret} },
		"tasks.credentials[0].host":         func(t *Tasks) { t.Credentials = []Credential{{Host: "https://a", PasswordFile: secret}} },
		"tasks.credentials[0].passwordFile": func(t *Tasks) { t.Credentials = []Credential{{Host: "a", PasswordFile: secret + "x"}} },
		"named twice": func(t *Tasks) {
			t.Credentials = []Credential{{Host: "a", PasswordFile: secret}, {Host: "a", PasswordFile: secret}}
		},
		"tasks.clone.max":     func(t *Tasks) { t.Clone.Max = "much" },
		"tasks.clone.timeout": func(t *Tasks) { t.Clone.Timeout = 0 },
		"tasks.clone.depth":   func(t *Tasks) { t.Clone.Depth = 0 },
		"tasks.clone.files":   func(t *Tasks) { t.Clone.Files = 0 },
		"tasks.clone.memory":  func(t *Tasks) { t.Clone.Memory = "1MiB" },
		"tasks.clone.cpu":     func(t *Tasks) { t.Clone.CPU = 0 },
		"tasks.exec.cpu":      func(t *Tasks) { t.Exec.CPU = time.Millisecond },
		"tasks.exec.disk":     func(t *Tasks) { t.Exec.Disk = "no" },
		"tasks.exec.user":     func(t *Tasks) { t.Exec.User = "nobody-of-that-name" },
		"is root":             func(t *Tasks) { t.Exec.User = "root" },
		"tasks.localFor":      func(t *Tasks) { t.LocalFor = []string{"*"} },
		"tasks.programs.a.namespaces": func(t *Tasks) {
			t.Programs = map[string]Program{"a": {Path: program, Namespaces: []string{"A"}}}
		},
		"tasks.credentials[0].namespaces": func(t *Tasks) {
			t.Credentials = []Credential{{Host: "a", PasswordFile: secret, Namespaces: []string{"a b"}}}
		},
		"tasks.exec.memory":             func(t *Tasks) { t.Exec.Memory = "-1" },
		"tasks.clone.total":             func(t *Tasks) { t.Clone.Total = "1GiB" },
		"tasks.clone.keep":              func(t *Tasks) { t.Clone.Keep = 0 },
		"tasks.keep":                    func(t *Tasks) { t.Keep = time.Second },
		"tasks.documents.max":           func(t *Tasks) { t.Documents.Max = "much" },
		"tasks.documents.perRepository": func(t *Tasks) { t.Documents.PerRepository = -1 },
	} {
		c := Defaults(Serve)
		set(&c.Tasks)
		require.ErrorContains(t, c.Validate(), want)
	}
}
