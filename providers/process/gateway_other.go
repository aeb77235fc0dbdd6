//go:build !linux

package process

import (
	"errors"
	"runtime"

	"github.com/bcc94042/instar/providers"
)

// Gateway is there on Linux only: it hands sockets from process to process, and takes up what an earlier one left running.
type Gateway struct{ providers.Gateway }

// Open fails.
func Open(Config) (*Gateway, error) {
	return nil, errors.New("the gateway process needs Linux, and this is " + runtime.GOOS + ": choose --gateway simulated, knative or external")
}

// Close does nothing.
func (*Gateway) Close(bool) error { return nil }

// Home is empty.
func (*Gateway) Home(_, _ string) string { return "" }

// Self is empty.
func (*Gateway) Self() []string { return nil }

// Logs are none.
func (*Gateway) Logs() []Log { return nil }

// Unaccepted is false.
func (*Gateway) Unaccepted(_, _ string) bool { return false }

// LastLines is empty.
func (*Gateway) LastLines(_, _ string, _ int64) string { return "" }
