package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// The exit codes.
const (
	ExitOK          = 0
	ExitGeneric     = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitConflict    = 4
	ExitAuth        = 5
	ExitTimeout     = 6
	ExitFailed      = 7
	ExitUnreachable = 8 // also: it cannot serve this now
	ExitInterrupted = 130
	ExitUnread      = 141 // as a shell tells of a process that SIGPIPE has ended
)

// Error is an error with its exit code and what to try next.
type Error struct {
	Code int
	Err  error
	Try  string
}

// Error and Unwrap are those of the error inside.
func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usage is an error of whoever typed the command line.
func Usage(err error) error { return &Error{Code: ExitUsage, Err: err} }

// Usagef is [Usage] of a text.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// Try says what to do about an error.
func Try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &Error{Code: CodeOf(err), Err: err, Try: fmt.Sprintf(format, args...)}
}

// CodeOf is the exit code of an error.
func CodeOf(err error) int {
	var e *Error
	var p *client.Problem
	var u *client.Unreachable
	var f *client.Foreign
	var n *streams.UnreachableError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &p):
		return codeOfProblem(p)
	case errors.As(err, &u), errors.As(err, &f), errors.As(err, &n):
		return ExitUnreachable
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	}
	return ExitGeneric
}

// exitOf are the problems that their status does not tell apart.
var exitOf = map[string]int{machines.CodeKeyReused: ExitConflict, machines.CodeDead: ExitFailed}

func codeOfProblem(p *client.Problem) int {
	if code, ok := exitOf[p.Code]; ok {
		return code
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return ExitUsage
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitAuth
	case http.StatusNotFound:
		return ExitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return ExitConflict
	case http.StatusGatewayTimeout:
		return ExitTimeout
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return ExitUnreachable
	}
	return ExitGeneric
}

// Report prints what went wrong, and the next command to try, and returns the exit code. Of what was interrupted it prints nothing, unless that is an [Error] with
// [ExitInterrupted], which has something to say.
func Report(ctx context.Context, stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, errUnread) {
		return ExitUnread
	}
	code := CodeOf(err)
	if code != ExitInterrupted && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	fmt.Fprintf(stderr, "instar: %v\n", err)
	if text := next(err, code, cmd); text != "" {
		fmt.Fprintf(stderr, "try: %s\n", text)
	}
	return code
}

// next is the command to try after an error.
func next(err error, code int, cmd *cobra.Command) string {
	var e *Error
	if errors.As(err, &e) && e.Try != "" {
		return e.Try
	}
	var n *streams.UnreachableError
	var p *client.Problem
	switch {
	case Busy(err) && errors.As(err, &p):
		return fmt.Sprintf("the same again in %s, and less at once", max(p.RetryAfter, time.Second))
	case errors.As(err, &n):
		return "start that NATS server, or name another one with --nats-url (nats.url); nats server check connection -s " + n.At + " asks it from here"
	case code == ExitUsage && cmd != nil:
		return cmd.CommandPath() + " --help"
	case code == ExitAuth:
		return "INSTAR_TOKEN=<token> " + cmp.Or(path(cmd), "instar")
	case code == ExitUnreachable:
		return "instar doctor"
	}
	return ""
}

// Busy reports that the server has done nothing, because too much is asked of it.
func Busy(err error) bool {
	var p *client.Problem
	return errors.As(err, &p) && p.Status == http.StatusTooManyRequests
}

func path(cmd *cobra.Command) string {
	if cmd == nil {
		return ""
	}
	return cmd.CommandPath()
}
