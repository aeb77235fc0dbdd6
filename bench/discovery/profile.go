package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// listens is a file that is built into the program when profiles are wanted: the program itself has no such door.
const listens = `package main

import (
	"net/http"
	_ "net/http/pprof"
	"os"
)

func init() {
	if addr := os.Getenv("INSTAR_BENCH_PPROF"); addr != "" {
		os.Unsetenv("INSTAR_BENCH_PPROF") // the program refuses settings that it does not know
		go func() { _ = http.ListenAndServe(addr, nil) }()
	}
}
`

// overlay writes what makes "go build" take that file for one of the program's, and returns its name.
func overlay(dir, program string) (string, error) {
	source := filepath.Join(dir, "listens.go")
	if err := os.WriteFile(source, []byte(listens), 0o600); err != nil {
		return "", err
	}
	raw, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(program, "listens_bench.go"): source}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, raw, 0o600)
}

// profile keeps a profile of the server as a file, beside whatever goes on. Without -profile it does nothing.
func (s *server) profile(ctx context.Context, o *options, name, what string) (wait func() error) {
	if o.profile == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() { done <- s.keep(ctx, filepath.Join(o.profile, name), what) }()
	return func() error { return <-done }
}

func (s *server) keep(ctx context.Context, name, what string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.pprof+"/debug/pprof/"+what, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := io.Copy(f, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", what, resp.Status)
	}
	return f.Close()
}

// seconds is a CPU profile of that length.
func seconds(d time.Duration) string {
	return fmt.Sprintf("profile?seconds=%d", max(int(d.Seconds()), 1))
}

// mallocs asks for a heap profile of what is in use, after a collection.
const mallocs = "heap?gc=1"
