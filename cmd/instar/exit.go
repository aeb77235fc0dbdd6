package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// The exit codes.
const (
	exitOK          = 0
	exitGeneric     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConflict    = 4
	exitAuth        = 5
	exitTimeout     = 6
	exitFailed      = 7
	exitUnreachable = 8 // also: it cannot serve this now
	exitInterrupted = 130
	exitUnread      = 141 // as a shell tells of a process that SIGPIPE has ended
)

// exitError is an error with its exit code and what to try next.
type exitError struct {
	code int
	err  error
	try  string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usage(err error) error { return &exitError{code: exitUsage, err: err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// try says what to do about an error.
func try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &exitError{code: codeOf(err), err: err, try: fmt.Sprintf(format, args...)}
}

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var e *exitError
	var p *client.Problem
	var u *client.Unreachable
	var f *client.Foreign
	var n *streams.UnreachableError
	switch {
	case errors.As(err, &e):
		return e.code
	case errors.As(err, &p):
		return codeOfProblem(p)
	case errors.As(err, &u), errors.As(err, &f), errors.As(err, &n):
		return exitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitGeneric
}

// exitOf are the problems that their status does not tell apart.
var exitOf = map[string]int{machines.CodeKeyReused: exitConflict, machines.CodeDead: exitFailed}

func codeOfProblem(p *client.Problem) int {
	if code, ok := exitOf[p.Code]; ok {
		return code
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return exitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitAuth
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return exitConflict
	case http.StatusGatewayTimeout:
		return exitTimeout
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return exitUnreachable
	}
	return exitGeneric
}

// report prints what went wrong, and the next command to try, and returns the exit code.
func report(ctx context.Context, stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errUnread) {
		return exitUnread
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	code := codeOf(err)
	fmt.Fprintf(stderr, "instar: %v\n", err)
	if text := next(err, code, cmd); text != "" {
		fmt.Fprintf(stderr, "try: %s\n", text)
	}
	return code
}

// next is the command to try after an error.
func next(err error, code int, cmd *cobra.Command) string {
	var e *exitError
	if errors.As(err, &e) && e.try != "" {
		return e.try
	}
	var n *streams.UnreachableError
	var p *client.Problem
	switch {
	case busy(err) && errors.As(err, &p):
		return fmt.Sprintf("the same again in %s, and less at once", max(p.RetryAfter, time.Second))
	case errors.As(err, &n):
		return "start that NATS server, or name another one with --nats-url (nats.url); nats server check connection -s " + n.At + " asks it from here"
	case code == exitUsage && cmd != nil:
		return cmd.CommandPath() + " --help"
	case code == exitAuth:
		return "INSTAR_TOKEN=<token> " + cmp.Or(path(cmd), "instar")
	case code == exitUnreachable:
		return "instar doctor"
	}
	return ""
}

// busy reports that the server has done nothing, because too much is asked of it.
func busy(err error) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Status == http.StatusTooManyRequests
}

func path(cmd *cobra.Command) string {
	if cmd == nil {
		return ""
	}
	return cmd.CommandPath()
}

// about adds the next command to try to a refusal that concerns one entity.
func about(err error, m *machines.Machine, id string) error {
	var p *client.Problem
	if !errors.As(err, &p) {
		return err
	}
	at := func(verb string) error { return try(err, "instar %s %s %s", m.Name, verb, id) }
	switch p.Code {
	case machines.CodeNotFound:
		for _, c := range m.Commands() {
			if c.Birth {
				return try(err, "instar %s ls, or instar %s %s %s", m.Name, m.Name, c.Name, id)
			}
		}
		return try(err, "instar %s ls", m.Name)
	case machines.CodeTransition, machines.CodeGuard, machines.CodeEvaluation:
		if p.CurrentState != "" {
			err = fmt.Errorf("%w\n  state %s takes %s", err, p.CurrentState, cmp.Or(strings.Join(p.AllowedCommands, ", "), "no command"))
		}
		if st, _ := m.State(p.CurrentState); st.Transitional {
			return try(err, "instar %s wait %s --for settled", m.Name, id)
		}
		return at("get")
	case machines.CodeExists, machines.CodePrecondition, machines.CodeParked:
		return at("get")
	case machines.CodeUnknown, machines.CodeStale:
		return at("events")
	case machines.CodeDead:
		return try(err, "instar dlq ls")
	}
	return err
}
