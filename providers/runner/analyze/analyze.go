package analyze

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Input is what an analysis reads.
type Input struct {
	Tree    *Tree
	Name    string                                                                       // of the repository, for titles
	Commit  string                                                                       // that is checked out; empty when it is not known
	History func(ctx context.Context, most int, each func(Commit)) (cut bool, err error) // newest first; cut when there are more
}

// Commit is one change of the history.
type Commit struct {
	Hash    string
	When    time.Time
	Author  string // distinguishes authors; no document names them
	Changes []Change
}

// Change is what a commit did to one file. Added and Deleted are 0 for files that are not text.
type Change struct {
	Path           string
	Added, Deleted int
}

// Document is one file that an analysis writes.
type Document struct {
	Name string // of the file, such as languages.md
	Type string // of its content, such as text/markdown
	Body []byte
}

// Result is what an analysis found.
type Result struct {
	Summary   string // one line
	Documents []Document
}

// Analysis is one kind of document.
type Analysis struct {
	Name    string // in task types and file names
	Doc     string
	History bool // it reads the history, too
	run     func(ctx context.Context, in *Input) (*report, error)
}

// All are the analyses, by name.
var All = []Analysis{
	{"dependencies", "Dependencies from lock files, as a CycloneDX bill of materials.", false, dependencies},
	{"hotspots", "Files that change often, from the history.", true, hotspots},
	{"languages", "Programming languages by bytes and files.", false, languages},
	{"licences", "Licences by SPDX ids, from headers and texts.", false, licences},
	{"lines", "Lines of code, comments and blanks by language.", false, lines},
	{"secrets", "Credentials that were committed, masked.", false, secrets},
	{"structure", "Folders, notable files, and the package graph of Go modules.", false, structure},
}

// Find is the analysis of that name.
func Find(name string) (Analysis, bool) {
	i, found := slices.BinarySearchFunc(All, name, func(a Analysis, name string) int { return cmp.Compare(a.Name, name) })
	if !found {
		return Analysis{}, false
	}
	return All[i], true
}

// report is what an analysis has to say, before it is written down.
type report struct {
	title   string
	summary string
	text    markdown
	data    any        // of the JSON document
	more    []Document // besides the two
}

// Run does the analysis. Its documents are <name>.md and <name>.json, and for dependencies also dependencies.cdx.json.
func (a Analysis) Run(ctx context.Context, in *Input) (*Result, error) {
	r, err := a.run(ctx, in)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, fmt.Errorf("cannot analyze %s of %s: %w", a.Name, in.Name, err)
	}
	var left []string
	if in.Tree != nil {
		left = in.Tree.LeftOut()
	}
	var md markdown
	md.line("# %s of %s", r.title, plain(in.Name))
	md.line("")
	if in.Commit != "" {
		md.line("Commit `%s`. %s", in.Commit, r.summary)
	} else {
		md.line("%s", r.summary)
	}
	for _, l := range left {
		md.line("")
		md.line("**Not complete:** %s.", l)
	}
	md.line("")
	md.WriteString(r.text.String())
	raw, err := json.MarshalIndent(struct {
		Repository string   `json:"repository"`
		Commit     string   `json:"commit,omitempty"`
		Summary    string   `json:"summary"`
		LeftOut    []string `json:"leftOut,omitempty"`
		Data       any      `json:"data"`
	}{in.Name, in.Commit, r.summary, left, r.data}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("cannot write %s of %s: %w", a.Name, in.Name, err)
	}
	documents := append([]Document{
		{Name: a.Name + ".md", Type: "text/markdown; charset=utf-8", Body: append(bytes.TrimRight([]byte(md.String()), "\n"), '\n')},
		{Name: a.Name + ".json", Type: "application/json", Body: append(raw, '\n')},
	}, r.more...)
	return &Result{Summary: r.summary, Documents: documents}, nil
}

// markdown is a document that grows.
type markdown struct{ strings.Builder }

func (m *markdown) line(format string, args ...any) { fmt.Fprintf(m, format+"\n", args...) }

// table writes rows below a head; columns whose title ends with # are numbers.
func (m *markdown) table(head []string, rows [][]string) {
	m.WriteString("|")
	for _, h := range head {
		m.WriteString(" " + strings.TrimSuffix(h, "#") + " |")
	}
	m.WriteString("\n|")
	for _, h := range head {
		if strings.HasSuffix(h, "#") {
			m.WriteString("--:|")
		} else {
			m.WriteString("---|")
		}
	}
	m.WriteString("\n")
	for _, row := range rows {
		m.line("| %s |", strings.Join(row, " | "))
	}
}

// code is a name from the repository in a cell or a sentence: no character of it means anything to Markdown.
func code(s string) string {
	s = plain(s)
	fence := "`"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		s = " " + s + " "
	}
	return fence + strings.ReplaceAll(s, "|", `\|`) + fence
}

// plain has no control characters, and is of one line.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r >= 0x80 && r < 0xa0 || r >= '\u202a' && r <= '\u202e' {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func size(bytes int64) string {
	switch {
	case bytes >= 10<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 10<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}
