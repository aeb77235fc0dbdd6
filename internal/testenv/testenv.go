// Package testenv runs tests of programs apart from whoever runs them: in UTC, without settings and contexts of their own.
package testenv

import (
	"os"
	"strings"
	"testing"
)

// Main runs the tests of a package and ends the process.
func Main(m *testing.M) {
	_ = os.Setenv("TZ", "UTC") // before anything asks for the local time; setting time.Local races with the embedded server's own goroutines
	dir, err := os.MkdirTemp("", "instar-config-")
	if err != nil {
		panic(err)
	}
	_ = os.Setenv("XDG_CONFIG_HOME", dir)
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "INSTAR_") {
			_ = os.Unsetenv(name)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}
