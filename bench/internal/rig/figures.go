package rig

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/bcc94042/instar/internal/program"
)

// Program is the one that is given, or else one that is built from the source into a directory.
func Program(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		return given, nil
	}
	root, err := program.Root(ctx)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "instar")
	return bin, program.Build(ctx, root, bin)
}

// Median is that of what get finds in each of some, of which there is one at least.
func Median[T any](of []T, get func(T) float64) float64 {
	all := make([]float64, len(of))
	for i, v := range of {
		all[i] = get(v)
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
