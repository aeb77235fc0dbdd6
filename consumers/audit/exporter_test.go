package audit

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/archive"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

func exporter(w *consumertest.World, dir string) *Exporter {
	f, err := archive.OpenFolder(dir)
	require.NoError(w.T, err)
	return &Exporter{Deps: w.WithDefaults(), To: f, chains: map[string]*audit.Chain{}}
}

// exported are the records in the files of all classes, whose chains are whole.
func exported(w *consumertest.World, dir string) map[string]int {
	w.T.Helper()
	n := map[string]int{}
	for _, class := range streams.Classes {
		files, err := filepath.Glob(filepath.Join(dir, class, "*"))
		require.NoError(w.T, err)
		c := audit.Chain{Class: class}
		stored := w.Stream(w.Names.AuditStream(class), ">")
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(w.T, err)
			for line := range bytes.SplitSeq(bytes.TrimSpace(text), []byte("\n")) {
				r, err := c.Next(line, time.Now())
				require.NoError(w.T, err, file)
				require.Equal(w.T, string(stored[r.Sequence-1].Data), string(line))
				n[class]++
			}
		}
	}
	return n
}

// What is exported are the records as they were written, each once, whoever exports, and whatever it remembers.
func TestRecordsAreExportedOnce(t *testing.T) {
	t.Parallel()
	w, dir := world(t), filepath.Join(t.TempDir(), "audit")
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	w.Ask(consumertest.ToThing("a", "done", `{}`))
	record(w, 3)
	e := exporter(w, dir)
	pass := func(e *Exporter) {
		for _, class := range streams.Classes {
			require.NoError(t, e.export(w.Ctx, class))
		}
	}
	pass(e)
	require.Equal(t, map[string]int{"state": 2, "error": 1}, exported(w, dir))
	pass(e)
	w.Ask(consumertest.ToThing("a", "add", `{"n":2}`))
	record(w, 4)
	other := exporter(w, dir)
	pass(other)
	require.Equal(t, map[string]int{"state": 3, "error": 1}, exported(w, dir))

	w.Ask(consumertest.ToThing("a", "close", ""))
	record(w, 5)
	require.ErrorIs(t, e.export(w.Ctx, "state"), fs.ErrExist, "the other one has exported what this one would")
	delete(e.chains, "state") // as Run does
	pass(e)
	delete(other.chains, "state")
	pass(other)
	require.Equal(t, map[string]int{"state": 4, "error": 1}, exported(w, dir))

	done := make(chan error)
	ctx, stop := context.WithCancel(w.Ctx)
	require.Zero(t, e.Behind("state"), "it does not run")
	go func() { done <- e.Run(ctx) }()
	w.Eventually("it runs", func() bool { return e.Behind("state") > 0 })
	stop()
	require.NoError(t, <-done)
	require.Zero(t, e.Behind("state"))
}

// What was exported is not followed by what does not follow it.
func TestWhatDoesNotFollowIsNotExported(t *testing.T) {
	t.Parallel()
	w, dir := world(t), filepath.Join(t.TempDir(), "audit")
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	record(w, 2)
	require.NoError(t, exporter(w, dir).export(w.Ctx, "state"))
	files, err := filepath.Glob(filepath.Join(dir, "state", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.NoError(t, os.Chmod(files[0], 0o600))
	require.NoError(t, os.WriteFile(files[0], append([]byte("x"), text...)[:len(text)-4], 0o600))
	require.ErrorContains(t, exporter(w, dir).export(w.Ctx, "state"), "what was exported was changed")
	require.NoError(t, os.WriteFile(files[0], text, 0o600))

	stored := w.Stream(w.Names.AuditStream("state"), ">")
	for prefix, c := range map[string]struct {
		same, others int
		broken       uint64
	}{"lost-its-end": {1, 2, 3}, "another": {0, 3, 3}, "empty": {0, 0, 1}} {
		e := exporter(w, dir)
		e.Names = streams.Names{Prefix: prefix}
		_, err = w.JS.CreateStream(w.Ctx, audit.Stream(e.Names, "state", 1))
		require.NoError(t, err)
		var head audit.Head
		for i := range c.same + c.others {
			var line []byte
			if i < c.same {
				line = stored[i].Data
				head, _, err = audit.HeadOf(line)
			} else {
				line, head, err = head.Seal(audit.Record{Class: "state", EventID: "another"}, time.Now())
			}
			require.NoError(t, err)
			w.Publish(&nats.Msg{Subject: e.Names.Audit("state", "thing", "default.a"), Data: line})
		}
		var broken *audit.BreakError
		require.ErrorAs(t, e.export(w.Ctx, "state"), &broken, prefix)
		require.Equal(t, c.broken, broken.Sequence, prefix)
	}
	after, err := filepath.Glob(filepath.Join(dir, "state", "*"))
	require.NoError(t, err)
	require.Equal(t, files, after)
}

// Records that have had their age before they were exported are missed, and what comes behind them is exported; one that is missing before its time stops the export.
func TestWhatWasDroppedByItsAgeIsLeftOut(t *testing.T) {
	t.Parallel()
	w := world(t)
	began := time.Now().Add(-4 * 365 * 24 * time.Hour)
	var all []audit.Line
	var head audit.Head
	for i, at := range []time.Time{began, began, time.Now(), time.Now(), time.Now()} {
		text, next, err := head.Seal(audit.Record{Class: "state", EventID: "x"}, at)
		require.NoError(t, err)
		r, err := audit.Parse(text)
		require.NoError(t, err)
		all, head = append(all, audit.Line{Class: "state", Record: r, Text: text, At: uint64(i + 1)}), next
	}
	dir := filepath.Join(t.TempDir(), "audit")
	e, c := exporter(w, dir), &audit.Chain{Class: "state"}
	require.NoError(t, e.write(w.Ctx, c, all[:1]))
	require.NoError(t, e.write(w.Ctx, c, all[2:3]))
	require.EqualValues(t, 3, c.Head.Sequence)
	var broken *audit.BreakError
	require.ErrorAs(t, e.write(w.Ctx, c, all[4:]), &broken)
	require.EqualValues(t, 4, broken.Sequence)
	files, err := os.ReadDir(filepath.Join(dir, "state"))
	require.NoError(t, err)
	require.Len(t, files, 2)
}
