// Package testenv runs tests of programs apart from whoever runs them: in UTC, without settings and contexts of their own, at addresses that nobody uses.
package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
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

// Address is one on loopback that nobody listens on, for what has to be known before it listens. Its port is below those that Linux gives to connections (from
// 32768 on), so that no connection takes it meanwhile.
func Address(t testing.TB) string {
	t.Helper()
	for range 100 {
		at := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000)) // #nosec G404 -- a port of a test
		if l, err := net.Listen("tcp", at); err == nil {
			_ = l.Close()
			return at
		}
	}
	t.Fatal("there is no free port")
	return ""
}
