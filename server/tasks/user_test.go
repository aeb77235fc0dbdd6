package tasks_test

import (
	"os"
	"os/user"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

// A program that runs as another user than the server reads the checkout and writes documents, and comes at nothing else of it.
func TestProgramsRunAsAnotherUser(t *testing.T) {
	t.Parallel()
	nobody, err := user.Lookup("nobody")
	if os.Getuid() != 0 || runtime.GOOS != "linux" || err != nil {
		t.Skip("only root can do that, on Linux, where there is nobody")
	}
	data, err := os.MkdirTemp("", "instar-user-") // that of the test lets nobody through
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(data)) })
	const script = `echo "is $(id -u)"; head -n 1 "$INSTAR_CHECKOUT/main.go"
ls "$0" > all 2>&1 || echo "cannot list the data"; echo x 2> no > "$INSTAR_CHECKOUT/x" || echo "cannot write the checkout"
ls "$INSTAR_DOCUMENTS"/../.. > all 2>&1 || echo "cannot list what others do"; echo "# mine" > "$INSTAR_DOCUMENTS/who.md"`
	r := start(t, tasks.Runner, func(c *config.Config) {
		c.Data, c.Tasks.Exec.User = data, nobody.Username
		c.Tasks.Programs = map[string]config.Program{"who": {Path: "/bin/sh", Args: []string{"-c", script, data}}}
	})
	r.ok("POST", "/v1/repositories/shop/create", `{"url":"`+origin(t)+`"}`)
	r.ok("POST", "/v1/repositories/shop/tasks/who/create", `{"type":"exec","params":{"program":"who"},"run":true}`)
	r.comes("/v1/repositories/shop/tasks/who", "succeeded")
	_, log := r.do("GET", "/v1/tasks/who/logs?follow=false", "")
	for _, line := range []string{"is " + nobody.Uid, "package main", "cannot list the data", "cannot write the checkout", "cannot list what others do"} {
		require.Contains(t, log, line)
	}
	_, text := r.do("GET", "/v1/tasks/who/document?name=who.md", "")
	require.Equal(t, "# mine\n", text)
}
