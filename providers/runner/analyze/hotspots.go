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

// hotspots are files that changed often and are long now: work on them pays. Authors are counted, not named.
func hotspots(ctx context.Context, in *Input) (*report, error) {
	var history []Commit
	if in.History != nil {
		var err error
		if history, err = in.History(ctx, in.Tree.limits.Commits); err != nil {
			return nil, err
		}
	}
	if len(history) == in.Tree.limits.Commits {
		in.Tree.left = append(in.Tree.left, fmt.Sprintf("the history has more than %d commits", len(history)))
	}
	files := map[string]*hotspot{}
	for _, c := range history {
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
	r := &report{title: "Hot spots", summary: "There is no history to read.", data: map[string]any{"commits": len(history), "files": list}}
	if len(history) > 0 {
		r.summary = fmt.Sprintf("%s from %s to %s.", count(len(history), "commit", "commits"), history[len(history)-1].When.UTC().Format(time.DateOnly), history[0].When.UTC().Format(time.DateOnly))
	}
	if len(history) == 1 {
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
