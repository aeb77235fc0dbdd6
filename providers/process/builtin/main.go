package builtin

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// programs are what [Main] runs, by name.
var programs = map[string]func(args []string) error{
	"hello":   hello,
	"static":  static,
	"forward": forward,
	"exec":    become,
	"end":     end,
}

// Main runs the program that args begin with and returns its exit code. It takes over the process's signals.
func Main(args []string) int { return run(args, os.Stderr) }

func run(args []string, stderr io.Writer) int {
	if len(args) == 0 || programs[args[0]] == nil {
		fmt.Fprintf(stderr, "there is no template %q; there are %s\n", strings.Join(args, " "), strings.Join(Names(), ", "))
		return 2
	}
	if err := programs[args[0]](args[1:]); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", args[0], err)
		return 1
	}
	return 0
}

// Names are the programs that can be services.
func Names() []string {
	names := []string{"hello", "static"}
	slices.Sort(names)
	return names
}
