// Package program builds the program for what runs it as a process of its own: benchmarks and tortures, which are modules of
// their own beside it.
package program

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/bcc94042/instar"

// Root is the directory of the program's module, as Go resolves it from the working directory.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module %s (run this from the repository): %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Folder is where the program's main package is.
func Folder(root string) string { return filepath.Join(root, "cmd", "instar") }

// Build compiles the program of the checkout below root into the file bin, in that module: so with the versions of libraries
// that a user gets. args are further ones of "go build".
func Build(ctx context.Context, root, bin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", bin}, args...), "./cmd/instar")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the program: %w\n%s", err, out)
	}
	return nil
}
