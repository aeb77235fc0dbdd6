//go:build !failpoint

package consumers

// failpoint marks a place where tests kill the process; see failpoint_on.go. It costs nothing without the build tag.
func failpoint(string) {}
