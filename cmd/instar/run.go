package main

import (
	"context"
	"errors"
	"io"
)

// run serves until ctx ends.
func run(context.Context, Config, string, io.Writer) error {
	return errors.New("the server is not wired yet")
}
