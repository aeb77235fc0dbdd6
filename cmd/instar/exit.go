package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
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
	exitUnreachable = 8
	exitInterrupted = 130
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

// report prints what went wrong, and the next command to try, and returns the exit code.
func report(ctx context.Context, stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	e := &exitError{code: exitGeneric, err: err}
	errors.As(err, &e)
	fmt.Fprintf(stderr, "instar: %v\n", err)
	if e.code == exitUsage && e.try == "" && cmd != nil {
		e.try = cmd.CommandPath() + " --help"
	}
	if e.try != "" {
		fmt.Fprintf(stderr, "try: %s\n", e.try)
	}
	return e.code
}
