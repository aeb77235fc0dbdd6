package program

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
)

func runner() *Runner {
	return &Runner{Programs: map[string]Program{
		"say":   {Path: "/bin/sh", Args: []string{"-c", `printf '%s|' "$@"; pwd; echo "$GREETING $HOME" >&2`, "sh"}, Arguments: true, Env: map[string]string{"GREETING": "hello"}},
		"exit":  {Path: "/bin/sh", Args: []string{"-c", `exit "$0"`}, Arguments: true},
		"flood": {Path: "/bin/sh", Args: []string{"-c", "yes"}},
		"wait":  {Path: "/bin/sh", Args: []string{"-c", "echo begun; sleep 600"}},
		"spin":  {Path: "/bin/sh", Args: []string{"-c", "while :; do :; done"}},
		"gone":  {Path: "/no/such/file"},
		"near":  {Path: "sh"},
	}}
}

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	require.NoError(t, runner().Run(t.Context(), &Call{Program: "say", Args: []string{"a b", "; rm -rf /", "$HOME"}}, Where{Dir: dir, Out: &out}))
	require.Equal(t, "a b|; rm -rf /|$HOME|"+dir+"\nhello "+dir+"\n", out.String())
	require.NoError(t, runner().Run(t.Context(), &Call{Program: "say"}, Where{Dir: dir}), "nobody has to listen")
}

func TestFailures(t *testing.T) {
	t.Parallel()
	limited := runner()
	limited.Limits = group.Limits{CPU: time.Second}
	for name, c := range map[string]struct {
		runner *Runner
		call   Call
		code   providers.Code
		says   string
	}{
		"another try":  {runner(), Call{Program: "exit", Args: []string{"75"}}, providers.Unavailable, "asks for another try"},
		"no other":     {runner(), Call{Program: "exit", Args: []string{"2"}}, providers.Invalid, "exit ended with exit code 2"},
		"unknown":      {runner(), Call{Program: "/bin/sh"}, providers.Invalid, "not in the configuration"},
		"no arguments": {runner(), Call{Program: "wait", Args: []string{"x"}}, providers.Invalid, "takes no arguments"},
		"not there":    {runner(), Call{Program: "gone"}, providers.Invalid, "cannot start /no/such/file"},
		"not absolute": {runner(), Call{Program: "near"}, providers.Invalid, "not absolute"},
		"zero byte":    {runner(), Call{Program: "say", Args: []string{"a\x00"}}, providers.Invalid, "zero byte"},
		"CPU time":     {limited, Call{Program: "spin"}, "", "spin was ended by"},
	} {
		err := c.runner.Run(t.Context(), &c.call, Where{Dir: t.TempDir()})
		require.ErrorContains(t, err, c.says, name)
		if c.code != "" {
			require.Equal(t, c.code, providers.CodeOf(err), name)
		}
	}
}

// A program that writes without end fills nothing, and ends with the context.
func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	r := runner()
	r.Output, r.Grace = 1000, time.Second
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	full := writer(func(p []byte) (int, error) {
		n, err := out.Write(p)
		if out.Len() >= 1000 {
			cancel()
		}
		return n, err
	})
	require.ErrorIs(t, r.Run(ctx, &Call{Program: "flood"}, Where{Dir: t.TempDir(), Out: full}), context.Canceled)
	require.Less(t, out.Len(), 1100)
	require.Contains(t, out.String(), "more bytes of output were left out")
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestTheContextEndsIt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	from, to := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- runner().Run(ctx, &Call{Program: "wait"}, Where{Dir: t.TempDir(), Out: to}) }()
	line := make([]byte, 16)
	n, err := from.Read(line)
	require.NoError(t, err)
	require.Equal(t, "begun", strings.TrimSpace(string(line[:n])))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
