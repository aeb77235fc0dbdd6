package analyze

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

type hotspot struct {
	Path    string    `json:"path"`
	Commits int       `json:"commits"`
	Authors int       `json:"authors"`
	Added   int       `json:"added"`
	Deleted int       `json:"deleted"`
	Lines   int       `json:"lines"` // now
	Last    time.Time `json:"last"`
	Score   int       `json:"score"` // commits times lines

	authors map[string]bool
}

// maxHotspots is how many are told.
const maxHotspots = 50

// changed adds a commit to the files that it has changed.
func changed(files map[string]*hotspot, c *Commit) {
	for _, ch := range c.Changes {
		h := files[ch.Path]
		if h == nil {
			h = &hotspot{Path: ch.Path, authors: map[string]bool{}}
			files[ch.Path] = h
		}
		h.Commits++
		h.Added, h.Deleted = h.Added+ch.Added, h.Deleted+ch.Deleted
		h.authors[c.Author] = true
		if c.When.After(h.Last) {
			h.Last = c.When.UTC()
		}
	}
}

// hotspots are files that changed often and are long now: work on them pays. Authors are counted, not named.
func hotspots(ctx context.Context, in *Input) (*report, error) {
	files := map[string]*hotspot{}
	var commits int
	var newest, oldest time.Time
	if in.History != nil {
		cut, err := in.History(ctx, in.Tree.limits.Commits, func(c Commit) {
			if commits++; commits == 1 {
				newest = c.When.UTC()
			}
			oldest = c.When.UTC()
			changed(files, &c)
		})
		if err != nil {
			return nil, err
		}
		if cut {
			in.Tree.left = append(in.Tree.left, fmt.Sprintf("the history has more than %d commits", commits))
		}
	}
	there := map[string]bool{}
	err := in.Tree.each(ctx, func(f File) bool { return files[f.Path] != nil }, func(f File, content []byte) {
		if foreign(f, content) == "" {
			there[f.Path], files[f.Path].Lines = true, bytes.Count(content, []byte("\n"))
		}
	})
	maps.DeleteFunc(files, func(path string, _ *hotspot) bool { return !there[path] })
	for _, h := range files {
		h.Authors, h.Score = len(h.authors), h.Commits*h.Lines
	}
	list := slices.SortedFunc(maps.Values(files), func(a, b *hotspot) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Path, b.Path)) })
	list = list[:min(len(list), maxHotspots)]
	r := &report{title: "Hot spots", summary: "There is no history to read.", data: map[string]any{"commits": commits, "files": list}}
	if commits > 0 {
		r.summary = fmt.Sprintf("%s from %s to %s.", count(commits, "commit", "commits"), oldest.Format(time.DateOnly), newest.Format(time.DateOnly))
	}
	if commits == 1 {
		r.text.line("The history has one commit, which tells nothing of what changes often: clone with a depth.")
		r.text.line("")
	}
	var rows [][]string
	for _, h := range list {
		rows = append(rows, []string{code(h.Path), fmt.Sprint(h.Commits), fmt.Sprint(h.Authors), fmt.Sprint(h.Added), fmt.Sprint(h.Deleted), fmt.Sprint(h.Lines), h.Last.Format(time.DateOnly), fmt.Sprint(h.Score)})
	}
	r.text.line("Score is commits times lines of today.")
	r.text.line("")
	r.text.table([]string{"file", "commits#", "authors#", "added#", "deleted#", "lines#", "last change", "score#"}, rows)
	return r, err
}
