package audit

// From records to files. Run, of the node with the role, passes over the classes: resume reads the last file, to know the last record; then parts of the chain are read (audit.Read), held
// against what is before them, and stored as files (write). What fails is logged, and the class is begun with again in the next pass.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

// Folder is where an exporter keeps files, which do not change once they are there (package archive).
type Folder interface {
	// Last is the name of the last file of a folder in it, by the order of names; empty where there is none.
	Last(ctx context.Context, folder string) (string, error)
	Read(ctx context.Context, name string) ([]byte, error)
	// Add stores a file, whole or not at all. Its error is [fs.ErrExist] where there is one of that name.
	Add(ctx context.Context, name string, data []byte) error
}

// Exporter copies records, as they were written, into files outside of NATS, where they stay when the streams have dropped them by their age: for each class a folder, in it files whose names
// are the sequence of their first record. Nothing is copied that does not follow what was copied before. Of two that run, one finds the files of the other, and goes on behind them.
type Exporter struct {
	consumers.Deps
	To    Folder
	Every time.Duration // 0 is an hour

	mu     sync.Mutex
	since  map[string]time.Time // by class, when all was exported last; nil while it does not run
	chains map[string]*audit.Chain
}

// Run exports until ctx ends, at once and every so often. What fails is logged, and tried again then.
func (e *Exporter) Run(ctx context.Context) error {
	e.Deps, e.chains = e.WithDefaults(), map[string]*audit.Chain{}
	for _, class := range streams.Classes {
		e.note(class)
	}
	defer e.note("")
	for {
		for _, class := range streams.Classes {
			if err := e.export(ctx, class); err == nil {
				e.note(class)
			} else if delete(e.chains, class); ctx.Err() == nil {
				e.Log.Error("records of the audit are not exported", "class", class, "error", err)
			}
		}
		every := e.Every
		if every == 0 {
			every = time.Hour
		}
		if !wait.For(ctx, every) {
			return nil
		}
	}
}

func (e *Exporter) note(class string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if class == "" {
		e.since = nil
		return
	}
	if e.since == nil {
		e.since = map[string]time.Time{}
	}
	e.since[class] = time.Now()
}

// Behind is for how long not all records of a class were exported; 0 where another process exports.
func (e *Exporter) Behind(class string) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.since[class]; ok {
		return time.Since(at)
	}
	return 0
}

// lines is how many records a file has at most.
const lines = 500

func (e *Exporter) export(ctx context.Context, class string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for e.chains[class] == nil {
		if err := e.resume(ctx, class); err != nil {
			return err
		}
	}
	for {
		part := audit.Part{Class: class, After: e.chains[class].Head.Sequence, Limit: lines}
		all, end, more, err := audit.Read(ctx, e.JS, e.Names, part)
		if err != nil {
			return fmt.Errorf("cannot read them: %w", err)
		}
		c := e.chains[class]
		if c.Life = end.Life; c.Head.Sequence > end.Sequence {
			return &audit.BreakError{Class: class, Sequence: end.Sequence + 1, Why: fmt.Sprintf("it was exported, with all behind it up to %d, and the stream has never had it: its chain begins anew, or it is another one; export it elsewhere", c.Head.Sequence)}
		}
		if err := e.write(ctx, c, all); err != nil {
			return err
		}
		if !more {
			return e.chains[class].End(end.Sequence, end.At, time.Now())
		}
	}
}

// resume reads how far the files of a class go.
func (e *Exporter) resume(ctx context.Context, class string) error {
	c := &audit.Chain{Class: class}
	name, err := e.To.Last(ctx, class)
	if err != nil {
		return err
	}
	if name != "" {
		text, err := e.To.Read(ctx, name)
		if err != nil {
			return err
		}
		text = bytes.TrimSuffix(text, []byte("\n"))
		head, r, err := audit.HeadOf(text[bytes.LastIndexByte(text, '\n')+1:])
		if err != nil || r.Class != class {
			return fmt.Errorf("the last record of %s, of class %q: %w", name, r.Class, errors.Join(err, errors.New("what was exported was changed")))
		}
		c.Begun, c.Head = true, head
	}
	e.chains[class] = c
	return nil
}

// write checks that records follow what was exported, and stores those that do as a file. Where some have had their age before they were exported, it says so, and goes on behind them.
func (e *Exporter) write(ctx context.Context, c *audit.Chain, all []audit.Line) (wrong error) {
	var text []byte
	var first uint64
	now := time.Now()
	for _, l := range all {
		before := c.Head.Sequence
		_, err := c.Next(l.Text, now)
		if err != nil && c.Begun && l.Record.Sequence > before+1 {
			next := &audit.Chain{Class: c.Class, Life: c.Life}
			if _, broken := next.Next(l.Text, now); broken == nil {
				e.Log.Warn("records of the audit were dropped by their age before they were exported", "class", c.Class, "from", before+1, "to", l.Record.Sequence-1)
				*c, err = *next, nil
			}
		}
		if wrong = err; wrong != nil {
			break
		}
		if text = append(append(text, l.Text...), '\n'); first == 0 {
			first = l.Record.Sequence
		}
	}
	if first == 0 {
		return wrong
	}
	err := e.To.Add(ctx, fmt.Sprintf("%s/%020d.jsonl", c.Class, first), text)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("another process exports, too: %w", err)
	}
	return errors.Join(err, wrong)
}
