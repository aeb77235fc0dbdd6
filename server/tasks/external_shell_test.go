package tasks_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A shell can pass 128 KiB to a program: work that prints more has its beginning as the result, and is not lost.
func TestAShellWhoseWorkPrintsMuch(t *testing.T) {
	t.Parallel()
	cmd := exampleWorkers(t)["nats CLI"]
	r := start(t, nil)
	sh := cmd(t, r.nats)
	text, err := os.ReadFile(sh.Args[1])
	require.NoError(t, err)
	sh.Args[1] = filepath.Join(t.TempDir(), "worker.sh")
	require.NoError(t, os.WriteFile(sh.Args[1], bytes.Replace(text, []byte(`  echo "hello `), []byte("  head -c 200000 /dev/zero | tr '\\0' x; echo \"hello "), 1), 0o600))
	runs(t, sh)
	r.ok("POST", "/v1/repositories/a/create", `{}`)
	r.ok("POST", "/v1/repositories/a/tasks/one/create", `{"type":"greet","pool":"greeters","params":{"name":"you"},"run":true}`)
	r.comes("/v1/tasks/one", "succeeded")
	require.Contains(t, fmt.Sprint(r.ok("GET", "/v1/tasks/one", "")), strings.Repeat("x", 1000))
}
