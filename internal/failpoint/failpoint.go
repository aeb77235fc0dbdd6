//go:build !failpoint

// Package failpoint kills the process at places in the code, for tests: with the build tag failpoint, and INSTAR_FAILPOINT=after-kv:3 in the
// environment, when the place after-kv is reached for the third time.
package failpoint

// Hit marks a place. It costs nothing without the build tag.
func Hit(string) {}
