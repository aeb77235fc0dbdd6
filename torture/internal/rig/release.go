package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bcc94042/instar/internal/program"
)

// LastRelease is the commit of the last release: a new one must work beside it.
const LastRelease = "6ee4f2ad118fa88b77ee27e1a15d8600ebe23d9c"

// ErrNoRelease says that the last release cannot be had here.
var ErrNoRelease = errors.New("the last release is not here")

// BuildRelease compiles the program of the last release from its commit, below dir. Its packages are compiled once: -trimpath lets them stay in
// the cache of Go, wherever dir is. It says that its version is the commit, by seven digits.
func BuildRelease(ctx context.Context, dir string) (string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return "", err
	}
	source, tar, bin := filepath.Join(dir, "source"), filepath.Join(dir, "source.tar"), filepath.Join(dir, "instar-"+LastRelease[:7])
	if err := os.MkdirAll(source, 0o700); err != nil {
		return "", err
	}
	if _, err := output(ctx, root, "git", "archive", "-o", tar, LastRelease); err != nil {
		return "", fmt.Errorf("%w: this is no clone, or it does not have its commit (git fetch --unshallow): %w", ErrNoRelease, err)
	}
	if _, err := output(ctx, source, "tar", "-xf", tar); err != nil {
		return "", err
	}
	if _, err := output(ctx, source, "go", "build", "-trimpath", "-ldflags", "-X main.version="+LastRelease[:7], "-o", bin, "./cmd/instar"); err != nil {
		return "", fmt.Errorf("%w: it does not compile: %w", ErrNoRelease, err)
	}
	return bin, os.RemoveAll(source)
}

// output runs a command in a directory.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
