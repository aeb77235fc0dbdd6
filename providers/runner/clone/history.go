package clone

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/analyze"
)

// maxLog is how much of a history is read as git prints it, in bytes.
const maxLog = 256 << 20

// Log writes the history of a checkout into a file, for [History] in another process. Without git there is nothing to write, and the name is empty.
func (c *Checkout) Log(ctx context.Context, dir string, most int) (file string, err error) {
	if c.cloner.git == "" {
		return "", nil
	}
	home, err := os.MkdirTemp(dir, "git-")
	if err != nil {
		return "", err
	}
	out, err := os.OpenFile(filepath.Join(home, "log"), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	g := &program{path: c.cloner.git, home: home, limits: c.cloner.limits(maxLog)}
	if err := g.config(&fetch{}); err != nil {
		return "", err
	}
	err = g.to(ctx, out, c.Dir, "log", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--max-count="+strconv.Itoa(most), "--format=%x01%H %at %ae")
	if info, failed := out.Stat(); failed == nil && providers.CodeOf(err) == providers.LimitExceeded && info.Size() == maxLog {
		err = nil // what is there is read
	}
	if err != nil {
		return "", fmt.Errorf("cannot read the history: %w", err)
	}
	return out.Name(), nil
}

// History reads the history of the checkout in a directory, newest first, up to so many commits: from the file that [Checkout.Log] has written, or with go-git. It is Input.History of package analyze.
func History(dir, file string) func(ctx context.Context, most int, each func(analyze.Commit)) (cut bool, err error) {
	return func(ctx context.Context, most int, each func(analyze.Commit)) (bool, error) {
		if file == "" {
			return byLibraryHistory(ctx, dir, most, each)
		}
		out, err := os.Open(file)
		if err != nil {
			return false, err
		}
		defer func() { _ = out.Close() }() // only read
		info, err := out.Stat()
		if err != nil {
			return false, err
		}
		raw, _ := os.ReadFile(filepath.Join(dir, ".git", "shallow")) // there is none of a whole history
		first := map[string]bool{}
		for line := range bytes.Lines(raw) {
			first[string(bytes.TrimSpace(line))] = true
		}
		n := 0
		err = parseLog(out, func(c analyze.Commit) {
			if first[c.Hash] { // it looks as if it had added all that there is
				c.Changes = nil
			}
			n++
			each(c)
		})
		return n >= most || info.Size() >= maxLog, err
	}
}

// maxField is how long a name of a file is in a history.
const maxField = 64 << 10

// parseLog reads records that begin with 0x01 and whose fields end with a zero byte. A name of a file may hold anything but that. What has no end is left out.
func parseLog(in io.Reader, each func(analyze.Commit)) error {
	fields := bufio.NewScanner(in)
	fields.Buffer(nil, maxField)
	fields.Split(func(data []byte, _ bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		return 0, nil, nil
	})
	var last *analyze.Commit
	for fields.Scan() {
		text := fields.Text()
		if head, found := strings.CutPrefix(strings.TrimLeft(text, "\n"), "\x01"); found {
			head, rest, _ := strings.Cut(head, "\n")
			parts := strings.SplitN(head, " ", 3)
			if len(parts) < 2 {
				continue
			}
			if last != nil {
				each(*last)
			}
			at, _ := strconv.ParseInt(parts[1], 10, 64) // git writes it
			last = &analyze.Commit{Hash: parts[0], When: time.Unix(at, 0)}
			if len(parts) == 3 {
				last.Author = parts[2]
			}
			text = rest
		}
		counts := strings.SplitN(strings.TrimPrefix(text, "\n"), "\t", 3)
		if last == nil || len(counts) != 3 {
			continue
		}
		added, _ := strconv.Atoi(counts[0]) // "-" of what is no text counts nothing
		deleted, _ := strconv.Atoi(counts[1])
		last.Changes = append(last.Changes, analyze.Change{Path: counts[2], Added: added, Deleted: deleted})
	}
	if last != nil {
		each(*last)
	}
	return fields.Err()
}
