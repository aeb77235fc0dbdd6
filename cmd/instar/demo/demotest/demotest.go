// Package demotest has tests of demos be the program that the demos start again.
package demotest

import (
	"context"
	"os"
	"testing"

	"github.com/spf13/cobra"
)

// Main runs the command that this program was started again with, of those below `demo`, and the tests otherwise.
func Main(m *testing.M, commands ...*cobra.Command) {
	if len(os.Args) < 2 || os.Args[1] != "demo" {
		os.Exit(m.Run())
	}
	cmd := &cobra.Command{SilenceUsage: true}
	cmd.AddCommand(commands...)
	cmd.SetArgs(os.Args[2:])
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
