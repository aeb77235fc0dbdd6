package audit

// From records to files. Run, of the node with the role, passes over the classes: resume reads the last file, to know the last record; then parts of the chain are read (audit.Read), held
// against what is before them, and stored as files (write). What fails is logged and counted, and the class is begun with again in the next pass.

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

// Folder is where an exporter keeps files, which do not change once they are there (package archive).
type Folder interface {
	// Last is the name of the last file of a folder in it that has an ending, by the order of names; empty where there is none.
	Last(ctx context.Context, folder, ending string) (string, error)
	Read(ctx context.Context, name string) ([]byte, error)
	// Add stores a file, whole or not at all. Its error is [fs.ErrExist] where there is one of that name.
	Add(ctx context.Context, name string, data []byte) error
}

// Exporter copies records, as they were written, into files outside of NATS, where they stay when the streams have dropped them by their age: for each class a folder, in it files whose names
// are the sequence of their first record. Of two that run, one finds the files of the other, and goes on behind them. Where the last record of the files is another one in the stream, nothing is copied: the
// files are of another chain.
type Exporter struct {
	consumers.Deps
	To Folder

	// Count is told of each problem with the records of a class: one of the constants below.
	Count func(class, problem string)

	chains map[string]*audit.Chain // by class, as far as it is exported
}

// Problems of an export.
const (
	ProblemFailed = "failed" // a try, after which there is another one
	ProblemMissed = "missed" // records were dropped by their age, or removed, before they were exported
	ProblemBroken = "broken" // a record does not follow the one before it: one of them was changed, or put there by somebody else. It is exported nevertheless
)

// Problems are all of them.
var Problems = []string{ProblemFailed, ProblemMissed, ProblemBroken}

const (
	every  = time.Hour   // between two looks for new records
	again  = time.Minute // after one that failed
	ending = ".jsonl"
	lines  = 500 // of a file at most
)

// Run exports until ctx ends, at once and every hour. What fails is logged, counted, and tried again after a minute.
func (e *Exporter) Run(ctx context.Context) error {
	e.Deps, e.chains = e.WithDefaults(), map[string]*audit.Chain{}
	for {
		pause := every
		for _, class := range streams.Classes {
			if err := e.export(ctx, class); err != nil && ctx.Err() == nil {
				delete(e.chains, class)
				e.Count(class, ProblemFailed)
				e.Log.Error("records of the audit are not exported; trying again", "class", class, "error", err)
				pause = again
			}
		}
		if !wait.For(ctx, pause) {
			return nil
		}
	}
}

func (e *Exporter) export(ctx context.Context, class string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if e.chains[class] == nil {
		c, err := e.resume(ctx, class)
		if err != nil {
			return err
		}
		e.chains[class] = c
	}
	for c := e.chains[class]; ; {
		all, end, more, err := audit.Read(ctx, e.JS, e.Names, audit.Part{Class: class, After: c.Head.Sequence, Limit: lines})
		if err != nil {
			return fmt.Errorf("cannot read them: %w", err)
		}
		if c.Life = end.Life; c.Head.Sequence > end.Sequence {
			return another(c.Head.Sequence, fmt.Sprintf("its last one is %d", end.Sequence))
		}
		if err := e.write(ctx, c, all); err != nil || !more {
			return err
		}
	}
}

// another says that the files are of another chain than the stream.
func another(last uint64, why string) error {
	return fmt.Errorf("record %d was exported last, and the stream has another chain (%s), as after a restore: give it another place to be exported to", last, why)
}

// resume reads how far the files of a class go. Their last record has to be that of the stream, unless it has had its age.
func (e *Exporter) resume(ctx context.Context, class string) (*audit.Chain, error) {
	c := &audit.Chain{Class: class}
	name, err := e.To.Last(ctx, class, ending)
	if err != nil || name == "" {
		return c, err
	}
	first, err := strconv.ParseUint(strings.TrimSuffix(path.Base(name), ending), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s was not put there by an export", name)
	}
	text, err := e.To.Read(ctx, name)
	if err != nil {
		return nil, err
	}
	all := bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	last := all[len(all)-1]
	c.Begun, c.Head = true, headOf(last, first+uint64(len(all))-1)
	stored, _, _, err := audit.Read(ctx, e.JS, e.Names, audit.Part{Class: class, After: c.Head.Sequence - 1, Limit: 1})
	if err == nil && len(stored) > 0 && stored[0].At == c.Head.Sequence && !bytes.Equal(stored[0].Text, last) {
		err = another(c.Head.Sequence, "its record of that number is another one")
	}
	return c, err
}

// headOf is the head behind the record of a place, whatever that says.
func headOf(line []byte, at uint64) audit.Head {
	head, _, _ := audit.HeadOf(line) // what was changed is told where it is read
	head.Sequence = at
	return head
}

// write stores records as files, each of which has all from its first one on, and counts what is not right with them: who was not to be told of it would not need the export.
func (e *Exporter) write(ctx context.Context, c *audit.Chain, all []audit.Line) error {
	for n := 0; n < len(all); {
		first, text := all[n].At, []byte(nil)
		if c.Begun && first > c.Head.Sequence+1 {
			e.Count(c.Class, ProblemMissed)
			e.Log.Error("records of the audit were dropped by their age, or removed, before they were exported", "class", c.Class, "from", c.Head.Sequence+1, "to", first-1)
			*c = audit.Chain{Class: c.Class, Life: c.Life}
		}
		for at := first; n < len(all) && all[n].At == at; n, at = n+1, at+1 {
			line := all[n].Text
			if _, err := c.Next(line, time.Now()); err != nil {
				e.Count(c.Class, ProblemBroken)
				e.Log.Error("a record of the audit is not right; it is exported as it is", "class", c.Class, "record", at, "error", err)
			}
			c.Begun, c.Head = true, headOf(line, at)
			text = append(append(text, line...), '\n')
		}
		if err := e.To.Add(ctx, fmt.Sprintf("%s/%020d%s", c.Class, first, ending), text); err != nil {
			return err
		}
	}
	return nil
}
