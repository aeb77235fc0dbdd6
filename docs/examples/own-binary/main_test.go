package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The binary runs in dev mode, its command line brings a lamp to its state, its documents describe lamps, and after a restart the lamp is
// what it was.
func TestALampShines(t *testing.T) {
	t.Parallel()
	binary, data := filepath.Join(t.TempDir(), "lamps"), t.TempDir()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		return string(out), err
	}
	if out, err := run("go", "build", "-o", binary, "."); err != nil {
		t.Fatal(out, err)
	}
	var server string
	tells := func(args, want string) {
		t.Helper()
		out, err := run(binary, append(strings.Fields(args), "--server", server)...)
		if err != nil || !strings.Contains(out, want) {
			t.Fatalf("%s: %s %v", args, out, err)
		}
	}
	server, stop := start(t, binary, data)
	tells("lamp light kitchen --color amber --wait", "lamp/kitchen light: applied, SHINING")
	tells("lamp ls", "7")
	tells("service ls", "hello") // those that ship are there, too
	var document struct{ Paths map[string]any }
	res, err := http.Get(server + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&document); err != nil || document.Paths["/v1/lamps/{id}/light"] == nil || document.Paths["/v1/services/{id}/create"] == nil {
		t.Fatal("the document lacks paths of machines: ", err, document.Paths)
	}
	stop()
	server, stop = start(t, binary, data)
	defer stop()
	tells("lamp ls", "SHINING")
	tells("lamp put-out kitchen", "lamp/kitchen put-out: applied, DARK")
	tells("lamp events kitchen", "lamp.lit")
}

// start runs the binary on a data directory, and returns where its API is.
func start(t *testing.T, binary, data string) (server string, stop func()) {
	dev := exec.Command(binary, "dev", "--data", data, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--gateway", "simulated", "--postgres", "off", "--log-level", "error")
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	dev.Stderr = &log
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = dev.Process.Signal(syscall.SIGTERM)
		if err := dev.Wait(); err != nil {
			t.Error("it did not stop: ", err, log.String())
		}
	})
	t.Cleanup(stop)
	time.AfterFunc(2*time.Minute, func() { _ = dev.Process.Kill() }) // a read that waits for it ends
	said, address := "", regexp.MustCompile(`API and docs +(\S+)/docs`)
	for part := make([]byte, 4096); !address.MatchString(said); {
		n, err := out.Read(part)
		if said += string(part[:n]); err != nil {
			t.Fatal("it ended: ", err, log.String())
		}
	}
	go func() { _, _ = out.Read(make([]byte, 4096)) }() // the rest of what it says
	return address.FindStringSubmatch(said)[1], stop
}
