package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// million measures a start with many entities: the time until the index is complete and commands are taken, the
// resident memory then, and a list by state. The measured process is a child of its own, so that what filled the
// store does not count.
func (o *options) millionEntities(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "instar-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("\n%d entities (profile os): filling the store...\n", o.million)
	started := time.Now()
	if err := fill(ctx, dir, o.million); err != nil {
		return fmt.Errorf("cannot fill the store: %w", err)
	}
	fmt.Printf("  filled in %s\n", time.Since(started).Round(time.Millisecond))
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-start", dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// fill writes entities as the engine would have left them.
func fill(ctx context.Context, dir string, n int) error {
	w, err := worldIn(ctx, dir, embedded.OS)
	if err != nil {
		return err
	}
	spec := service.Spec{Image: "hello", Env: map[string]string{"GREETING": "hello"}, Port: 8080}
	states := []string{service.Ready, service.Ready, service.Ready, service.Ready, service.Ready, service.Ready, service.Ready, service.Ready, service.Failed, service.Deleted}
	batch := make([]publish.Write, 0, 1000)
	for i := range n {
		at := time.Now().UTC()
		e := machines.Entity{
			Schema: 1, Machine: "service", Namespace: "default", ID: fmt.Sprintf("svc-%07d", i), State: states[i%len(states)],
			Version: 4, Generation: 1, Since: at, CreatedAt: at, UpdatedAt: at, Labels: map[string]string{"team": fmt.Sprintf("t%d", i%50)},
			Data: &service.Data{Spec: &spec, SpecHash: spec.Hash(), ObservedAt: at, Snapshot: &service.Snapshot{Exists: true, Ready: machines.True, URL: "http://127.0.0.1:1", LatestCreated: "r-1", LatestReady: "r-1", Serving: "r-1", Traffic: []service.Traffic{{Revision: "r-1", Percent: 100}}}},
		}
		value, err := e.AppendJSON(nil)
		if err != nil {
			return err
		}
		m := &nats.Msg{Subject: "$KV.services." + e.Key(), Data: value, Header: nats.Header{}}
		batch = append(batch, publish.Write{Stream: "KV_services", Msg: m})
		if len(batch) < cap(batch) && i < n-1 {
			continue
		}
		for _, r := range w.appender.Append(ctx, batch) {
			if r.Err != nil {
				return r.Err
			}
		}
		batch = batch[:0]
	}
	return w.close()
}

// startFrom is the measured process: it starts on a filled directory as the program does.
func startFrom(ctx context.Context, dir string) error {
	started := time.Now()
	w, err := worldIn(ctx, dir, embedded.OS)
	if err != nil {
		return err
	}
	opened := time.Since(started)
	ix := w.indexes.Get("service")
	defer w.engine(ctx)()
	<-ix.Ready()
	raw, err := w.commands.Ask(ctx, publish.Command{Machine: "service", Key: "default.svc-0000001", Name: "label", Body: labelBody(1)})
	if err != nil {
		return err
	}
	if err := applied(raw); err != nil {
		return err
	}
	ready := time.Since(started)
	fmt.Printf("  start to ready: %s (streams open after %s, then the index and a first command)\n", ready.Round(time.Millisecond), opened.Round(time.Millisecond))
	fmt.Printf("  resident memory: %s now, %s at its peak\n", procStatus("VmRSS"), procStatus("VmHWM"))
	listed := time.Now()
	page := ix.List(index.Query{Namespace: "default", States: []string{service.Failed}, Limit: 500})
	fmt.Printf("  list by state: %s for the first %d of %d FAILED; counts by state: %s\n", time.Since(listed).Round(time.Microsecond), len(page.Items), ix.Counts("")[service.Failed], counts(ix))
	return nil
}

func counts(ix *index.Index) string {
	at := time.Now()
	raw, err := json.Marshal(ix.Counts("default"))
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s in %s", raw, time.Since(at).Round(time.Microsecond))
}

// procStatus is a line of /proc/self/status.
func procStatus(name string) string {
	raw, err := os.ReadFile(filepath.Join("/proc", "self", "status"))
	if err != nil {
		return "unknown"
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "unknown"
}
