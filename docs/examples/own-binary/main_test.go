package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The binary runs in dev mode, and its command line brings a lamp to its state.
func TestALampShines(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "lamps")
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("go", "build", "-o", binary, "."); err != nil {
		t.Fatal(out, err)
	}
	dev := exec.Command(binary, "dev", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--gateway", "simulated", "--postgres", "off", "--log-level", "error")
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	dev.Stderr = &log
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		if err := dev.Wait(); err != nil {
			t.Error("it did not stop: ", err, log.String())
		}
	})
	time.AfterFunc(2*time.Minute, func() { _ = dev.Process.Kill() }) // a read that waits for it ends
	said, address := "", regexp.MustCompile(`API and docs +(\S+)/docs`)
	for part := make([]byte, 4096); !address.MatchString(said); {
		n, err := out.Read(part)
		if said += string(part[:n]); err != nil {
			t.Fatal("it ended: ", err, log.String())
		}
	}
	go func() { _, _ = out.Read(make([]byte, 4096)) }() // the rest of what it says
	server := address.FindStringSubmatch(said)[1]
	for _, step := range []struct{ args, want string }{
		{"lamp light kitchen --color amber --wait", "lamp/kitchen light: applied, SHINING"},
		{"lamp ls", "7"},
		{"lamp put-out kitchen", "lamp/kitchen put-out: applied, DARK"},
		{"service ls", "hello"}, // those that ship are there, too
	} {
		out, err := run(binary, append(strings.Fields(step.args), "--server", server)...)
		if err != nil || !strings.Contains(out, step.want) {
			t.Fatalf("%s: %s %v", step.args, out, err)
		}
	}
}
