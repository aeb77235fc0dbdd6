package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// diskSize is the size of the disk that is filled.
const diskSize = "48m"

// DiskFull fills a small disk under the data of a running program and frees it again.
func DiskFull(t *part.T) error {
	mount := t.Dir + "-disk"
	if err := os.MkdirAll(mount, 0o700); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size="+diskSize); err != nil {
		return part.Skipped(fmt.Sprintf("a small disk cannot be mounted here (%v); it takes root", err))
	}
	t.OnEnd(func() {
		if err := syscall.Unmount(mount, syscall.MNT_DETACH); err != nil {
			t.Say("cannot unmount %s: %v", mount, err)
		}
	})
	i, err := rig.New(t.Bin, filepath.Join(mount, "data"), "", "--durability", "interval", "--log-level", "warn")
	if err != nil {
		return err
	}
	i.Logs = t.Dir + "-data.log" // beside the disk
	t.OnEnd(func() {
		if i.Process != nil {
			i.Kill()
		}
	})
	if err := i.Serve(t.Ctx); err != nil {
		return err
	}
	purge, err := purgeable(t, i.NATSURL())
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	crowd := &load.Crowd{Name: "c", Clients: 4, Entities: 50, Bases: []string{"http://" + i.HTTP}, Seed: t.Seed, Think: 50 * time.Millisecond, Patience: 3, Journal: journal}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	for round := range t.Amount(3, 9) {
		left := int64(0)
		if round%3 == 1 {
			left = 512 << 10 // too little, but not nothing
		}
		meanwhile := func() error { return nil }
		if round%3 == 2 {
			meanwhile = func() error { i.Kill(); return i.Start("") }
		}
		if err := fillAndFree(t, i, journal, filepath.Join(mount, "ballast"), left, meanwhile); err != nil {
			return err
		}
	}
	if err := fillAndFree(t, i, journal, filepath.Join(mount, "ballast"), 0, purge); err != nil {
		return err
	}
	crowd.Finish(40 * time.Second)
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	return t.SettleAndJudge(r, journal, 60*time.Second, nil)
}

// purgeable makes a stream and returns what purges a part of it, as somebody does who makes room. While the disk is full the server
// then hangs in nats-server 2.15.2.
func purgeable(t *part.T, url string) (func() error, error) {
	r, err := t.Reader(url)
	if err != nil {
		return nil, err
	}
	stream, err := r.JS().CreateStream(t.Ctx, jetstream.StreamConfig{Name: "FOREIGN", Subjects: []string{"foreign.*"}})
	if err != nil {
		return nil, fmt.Errorf("cannot make a stream: %w", err)
	}
	for n := range 1000 { // what tells that half of them are gone takes more than is left of a page
		if _, err := r.JS().Publish(t.Ctx, fmt.Sprintf("foreign.%d", n%2), []byte("to be purged")); err != nil {
			return nil, fmt.Errorf("cannot write to a stream: %w", err)
		}
	}
	return func() error {
		ctx, cancel := context.WithTimeout(t.Ctx, time.Second)
		defer cancel()
		t.Say("a purge on the full disk: %v", stream.Purge(ctx, jetstream.WithPurgeSubject("foreign.1")))
		return nil
	}, nil
}

// fillAndFree fills the disk but for some bytes, waits until the program says so, does something then, frees the disk, and waits until
// it serves again by itself. It may have ended, with an error: a service manager starts it again.
func fillAndFree(t *part.T, i *rig.Instar, journal *load.Journal, ballast string, left int64, meanwhile func() error) error {
	if !wait.For(t.Ctx, time.Second) {
		return t.Ctx.Err()
	}
	began := time.Now()
	if err := fill(ballast, left); err != nil {
		return err
	}
	noticed := rig.Until(t.Ctx, 30*time.Second, "readyz says that the disk is full", func() bool {
		_, checks := i.Readyz()
		disk, told := checks["disk"]
		return told && !disk.OK
	})
	after := part.Since(began)
	if err := meanwhile(); err != nil {
		return err
	}
	noticed = errors.Join(noticed, i.Alive(t.Ctx, 30*time.Second))
	refusal := refused503(t, i)
	if err := os.Remove(ballast); err != nil {
		return err
	}
	freed, next := time.Now(), journal.NextAnswer()
	back, ended := i.Ready(t.Ctx, 60*time.Second), ""
	if !i.Running() {
		ended = ", ended and started"
		if err := i.Start(""); err != nil {
			return err
		}
		back = i.Ready(t.Ctx, 60*time.Second)
	}
	serving := part.Since(freed)
	select {
	case <-next:
	case <-time.After(20 * time.Second):
		back = errors.Join(back, errors.New("no command was acknowledged within 20 s after it was ready"))
	}
	t.Say("full but for %d KiB: noticed after %s; a command then: %s; ready again %s after there was room%s", left>>10, after, refusal, serving, ended)
	if noticed != nil || back != nil || !strings.HasPrefix(refusal, "503, Retry-After") {
		t.Violations++
		t.Say("VIOLATION disk: %v", errors.Join(noticed, back, errors.New("a command was answered "+refusal)))
	}
	return t.Ctx.Err()
}

// fill writes a file until the disk has only so much left.
func fill(path string, left int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	for {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			return err
		}
	}
	if left == 0 {
		return nil
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	return f.Truncate(max(size-left, 0))
}

// refused503 is what a command is answered while the disk is full.
func refused503(t *part.T, i *rig.Instar) string {
	c := &http.Client{Timeout: 5 * time.Second}
	r, err := c.Post("http://"+i.HTTP+"/v1/services/e0/refresh?namespace=default", "application/json", strings.NewReader("{}"))
	if err != nil {
		return err.Error()
	}
	defer r.Body.Close()
	if after := r.Header.Get("Retry-After"); r.StatusCode == http.StatusServiceUnavailable && after != "" {
		return "503, Retry-After " + after
	}
	return r.Status
}
