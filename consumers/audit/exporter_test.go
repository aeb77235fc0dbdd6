package audit

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/internal/archive"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

// counted is an exporter, and what it counts.
type counted struct {
	*Exporter
	problems map[string]int
}

func exporter(w *consumertest.World, dir string) counted {
	require.NoError(w.T, os.MkdirAll(dir, 0o700))
	f, err := archive.OpenFolder(dir)
	require.NoError(w.T, err)
	c := counted{problems: map[string]int{}}
	c.Exporter = &Exporter{Deps: w.WithDefaults(), To: f, Count: func(_, problem string) { c.problems[problem]++ }, chains: map[string]*audit.Chain{}}
	return c
}

// try exports a class. A pull that was lost on a busy machine is tried again, as Run does.
func (c counted) try(w *consumertest.World, class string) (err error) {
	w.Eventually("an export", func() bool {
		if err = c.export(w.Ctx, class); err != nil {
			delete(c.chains, class)
		}
		return !errors.Is(err, context.DeadlineExceeded)
	})
	return err
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
	pass := func(e counted) {
		for _, class := range streams.Classes {
			require.NoError(t, e.try(w, class))
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
	require.ErrorIs(t, e.try(w, "state"), fs.ErrExist, "the other one has exported what this one would")
	pass(e)
	require.ErrorIs(t, other.try(w, "state"), fs.ErrExist)
	pass(other)
	require.Equal(t, map[string]int{"state": 4, "error": 1}, exported(w, dir))
	require.Empty(t, e.problems)

	done := make(chan error)
	ctx, stop := context.WithCancel(w.Ctx)
	third := exporter(w, filepath.Join(t.TempDir(), "third"))
	go func() { done <- third.Run(ctx) }()
	w.Eventually("it runs", func() bool { last, _ := third.To.Last(ctx, "error", ending); return last != "" })
	stop()
	require.NoError(t, <-done)
}

// What was exported of one chain is not followed by another chain.
func TestFilesAreOfOneChain(t *testing.T) {
	t.Parallel()
	w, dir := world(t), filepath.Join(t.TempDir(), "audit")
	w.Ask(consumertest.ToThing("a", "create", ""))
	w.Ask(consumertest.ToThing("a", "add", `{"n":1}`))
	record(w, 2)
	require.NoError(t, exporter(w, dir).try(w, "state"))
	stored := w.Stream(w.Names.AuditStream("state"), ">")
	for prefix, own := range map[string]int{"lost-its-end": 1, "another": 0, "empty": -1} { // how many of its three records are those that were exported
		e := exporter(w, dir)
		e.Names = streams.Names{Prefix: prefix}
		_, err := w.JS.CreateStream(w.Ctx, audit.Stream(e.Names, "state", 1))
		require.NoError(t, err)
		var head audit.Head
		for i := range 3 + 3*min(own, 0) {
			line := stored[min(i, 1)].Data
			if i < own {
				head, _, err = audit.HeadOf(line)
			} else {
				line, head, err = head.Seal(audit.Record{Class: "state", EventID: "another"}, time.Now())
			}
			require.NoError(t, err)
			w.Publish(&nats.Msg{Subject: e.Names.Audit("state", "thing", "default.a"), Data: line})
		}
		require.ErrorContains(t, e.try(w, "state"), "the stream has another chain", prefix)
		require.Empty(t, e.problems)
	}
	files, err := filepath.Glob(filepath.Join(dir, "state", "*"))
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// What is not right with records is counted, and they are exported nevertheless: files that each have all from their first record on.
func TestWhatIsNotRightIsCounted(t *testing.T) {
	t.Parallel()
	w := world(t)
	var all []audit.Line
	var head audit.Head
	for i, at := range []time.Time{time.Now().Add(-4 * 365 * 24 * time.Hour), time.Now().Add(-4 * 365 * 24 * time.Hour), time.Now(), time.Now(), time.Now(), time.Now(), time.Now()} {
		text, next, err := head.Seal(audit.Record{Class: "state", EventID: "x"}, at)
		require.NoError(t, err)
		all, head = append(all, audit.Line{Class: "state", Text: text, At: uint64(i + 1)}), next
	}
	all[3].Text = []byte(`"not one"`)
	dir := filepath.Join(t.TempDir(), "audit")
	e, c := exporter(w, dir), &audit.Chain{Class: "state"}
	require.NoError(t, e.write(w.Ctx, c, all[:1]))
	require.Empty(t, e.problems)
	require.NoError(t, e.write(w.Ctx, c, all[2:3]))
	require.Equal(t, map[string]int{ProblemMissed: 1}, e.problems, "it had its age")
	require.NoError(t, e.write(w.Ctx, c, all[3:5]))
	require.Equal(t, map[string]int{ProblemMissed: 1, ProblemBroken: 2}, e.problems, "it is none, and the one behind it does not follow it")
	require.NoError(t, e.write(w.Ctx, c, all[6:]))
	require.Equal(t, map[string]int{ProblemMissed: 2, ProblemBroken: 3}, e.problems, "one was removed before its time")
	files, err := filepath.Glob(filepath.Join(dir, "state", "*"))
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimLeft(filepath.Base(f), "0"))
	}
	require.Equal(t, []string{"1.jsonl", "3.jsonl", "4.jsonl", "7.jsonl"}, names)
	dir = filepath.Join(t.TempDir(), "gap")
	require.NoError(t, exporter(w, dir).write(w.Ctx, &audit.Chain{Class: "state"}, []audit.Line{all[4], all[6]}))
	files, err = filepath.Glob(filepath.Join(dir, "state", "*"))
	require.NoError(t, err)
	require.Len(t, files, 2)
}
