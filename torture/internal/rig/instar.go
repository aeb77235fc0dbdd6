package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/program"
)

// Build compiles the program with its failpoints.
func Build(ctx context.Context, dir string) (string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "instar")
	return bin, program.Build(ctx, root, bin, "-tags", "failpoint")
}

// Instar is a server that can be started again and again on the same directory and ports.
type Instar struct {
	Bin  string
	Dir  string // of its data
	Logs string // file with everything that it says; beside Dir when empty
	HTTP string // host:port
	NATS string // host:port of the embedded server, or empty when attached
	URL  string // of the NATS server to attach to
	Args []string
	Name string   // of the node, in a cluster
	In   []string // what the program is started through, such as ip netns exec NAME
	Away bool     // it is stopped or cut off, and counts for nobody

	*Process
}

// New picks ports for a server with its data in dir. url is the NATS server to attach to, or empty.
func New(bin, dir, url string, args ...string) (*Instar, error) {
	i := &Instar{Bin: bin, Dir: dir, URL: url, Args: args}
	var err error
	if i.HTTP, err = Port(); err != nil {
		return nil, err
	}
	if url == "" {
		if i.NATS, err = Port(); err != nil {
			return nil, err
		}
	}
	return i, nil
}

// Log is the file with everything that it said.
func (i *Instar) Log() string { return cmp.Or(i.Logs, i.Dir+".log") }

// NATSURL is where clients of NATS connect.
func (i *Instar) NATSURL() string {
	if i.URL != "" {
		return i.URL
	}
	return "nats://" + i.NATS
}

// Start runs it; it is not ready yet. failpoint is name:n, or empty.
func (i *Instar) Start(failpoint string) error {
	if err := os.MkdirAll(filepath.Dir(i.Dir), 0o700); err != nil {
		return err
	}
	args := []string{"serve", "--data", i.Dir, "--http", i.HTTP, "--gateway", "simulated", "--insecure"}
	if i.URL != "" {
		args = append(args, "--nats-url", i.URL)
	} else {
		args = append(args, "--nats", i.NATS)
	}
	line := append(append(append([]string{}, i.In...), i.Bin), append(args, i.Args...)...)
	var err error
	i.Process, err = start(i.Log(), []string{"INSTAR_FAILPOINT=" + failpoint}, line[0], line[1:]...)
	return err
}

// Serve starts it and waits until it is ready.
func (i *Instar) Serve(ctx context.Context) error {
	if err := i.Start(""); err != nil {
		return err
	}
	return i.Ready(ctx, 30*time.Second)
}

// Ready waits until it serves.
func (i *Instar) Ready(ctx context.Context, most time.Duration) error {
	return i.await(ctx, most, "instar is ready", func() bool { status, _ := i.Readyz(); return status == http.StatusOK })
}

// Alive waits until it answers at all, as a standby does.
func (i *Instar) Alive(ctx context.Context, most time.Duration) error {
	return i.await(ctx, most, "instar answers", func() bool { status, _ := i.Readyz(); return status != 0 })
}

func (i *Instar) await(ctx context.Context, most time.Duration, what string, holds func() bool) error {
	err := Until(ctx, most, what, func() bool { return holds() || !i.Running() })
	if err == nil && !i.Running() {
		err = fmt.Errorf("instar ended instead of starting")
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; it said:\n%s", err, tail(i.Log()))
	}
	return err
}

var quick = &http.Client{Timeout: 2 * time.Second}

// Check is one row of /readyz.
type Check struct {
	Name, Detail string
	OK           bool
}

// Readyz is the status of /readyz and its checks by name; 0 says that nobody answers.
func (i *Instar) Readyz() (status int, checks map[string]Check) {
	r, err := quick.Get("http://" + i.HTTP + "/readyz?verbose")
	if err != nil {
		return 0, nil
	}
	defer r.Body.Close()
	var h struct{ Checks []Check }
	if err := json.NewDecoder(r.Body).Decode(&h); err != nil {
		return 0, nil
	}
	checks = map[string]Check{}
	for _, c := range h.Checks {
		checks[c.Name] = c
	}
	return r.StatusCode, checks
}

func tail(log string) string {
	raw, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-12):], "\n")
}

// Tail is the end of what it said.
func (i *Instar) Tail() string { return tail(i.Log()) }
