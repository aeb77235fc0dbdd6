package clone

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers/runner/analyze"
)

// History reads up to that many commits of a checkout, newest first. It is Input.History of package analyze.
func (c *Checkout) History(ctx context.Context, most int) ([]analyze.Commit, error) {
	if c.git == "" {
		return byLibraryHistory(ctx, c.Dir, most)
	}
	home, err := os.MkdirTemp("", "instar-git-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(home) }()
	g := &program{path: c.git, home: home}
	if err := g.config(&fetch{}); err != nil {
		return nil, err
	}
	out, err := g.run(ctx, c.Dir, "log", "--numstat", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--max-count="+strconv.Itoa(most), "--format=%x01%H %at %ae")
	if err != nil {
		return nil, fmt.Errorf("cannot read the history: %w", err)
	}
	list := parseLog(out)
	cut, _ := os.ReadFile(filepath.Join(c.Dir, ".git", "shallow")) // there is none of a whole history
	for i := range list {
		if bytes.Contains(cut, []byte(list[i].Hash)) { // it looks as if it had added all that there is
			list[i].Changes = nil
		}
	}
	return list, nil
}

// parseLog reads records that begin with 0x01 and whose fields end with a zero byte. A name of a file may hold anything but that.
func parseLog(out []byte) []analyze.Commit {
	var list []analyze.Commit
	for field := range bytes.SplitSeq(out, []byte{0}) {
		text := string(field)
		if head, found := strings.CutPrefix(strings.TrimLeft(text, "\n"), "\x01"); found {
			head, rest, _ := strings.Cut(head, "\n")
			parts := strings.SplitN(head, " ", 3)
			if len(parts) < 2 {
				continue
			}
			at, _ := strconv.ParseInt(parts[1], 10, 64) // git writes it
			c := analyze.Commit{Hash: parts[0], When: time.Unix(at, 0)}
			if len(parts) == 3 {
				c.Author = parts[2]
			}
			list = append(list, c)
			text = rest
		}
		if len(list) == 0 {
			continue
		}
		counts := strings.SplitN(strings.TrimPrefix(text, "\n"), "\t", 3)
		if len(counts) != 3 {
			continue
		}
		added, _ := strconv.Atoi(counts[0]) // "-" of what is no text counts nothing
		deleted, _ := strconv.Atoi(counts[1])
		last := &list[len(list)-1]
		last.Changes = append(last.Changes, analyze.Change{Path: counts[2], Added: added, Deleted: deleted})
	}
	return list
}
