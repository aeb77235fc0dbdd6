package analyze

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-enry/go-enry/v2"
)

// headBytes is what the language of a file is told from.
const headBytes = 16 << 10

// foreign says why a file is not counted as written in this repository.
func foreign(f File, content []byte) string {
	switch {
	case enry.IsVendor(f.Path):
		return "vendored"
	case len(content) == 0:
		return "empty"
	case enry.IsBinary(content[:min(len(content), headBytes)]):
		return "binary"
	case enry.IsGenerated(f.Path, content):
		return "generated"
	}
	return ""
}

func languageOf(f File, content []byte) string {
	return enry.GetLanguage(f.Path, content[:min(len(content), headBytes)])
}

type languageShare struct {
	Language string  `json:"language"`
	Type     string  `json:"type"` // programming, markup, data, prose
	Files    int     `json:"files"`
	Bytes    int64   `json:"bytes"`
	Share    float64 `json:"share"` // of programming and markup, in percent; 0 for others
}

var languageTypes = map[enry.Type]string{enry.Programming: "programming", enry.Markup: "markup", enry.Data: "data", enry.Prose: "prose"}

// languages counts bytes as GitHub does: without what is vendored, generated, binary or documentation, and with shares of programming and markup only.
func languages(ctx context.Context, in *Input) (*report, error) {
	found, skipped := map[string]*languageShare{}, map[string]int{}
	err := in.Tree.each(ctx, nil, func(f File, content []byte) {
		why := foreign(f, content)
		if why == "" && enry.IsDocumentation(f.Path) {
			why = "documentation"
		}
		name := ""
		if why == "" {
			if name = languageOf(f, content); name == "" {
				why = "of no known language"
			}
		}
		if why != "" {
			skipped[why]++
			return
		}
		l := found[name]
		if l == nil {
			l = &languageShare{Language: name, Type: cmp.Or(languageTypes[enry.GetLanguageType(name)], "other")}
			found[name] = l
		}
		l.Files++
		l.Bytes += f.Size
	})
	list, counted := slices.SortedFunc(maps.Values(found), func(a, b *languageShare) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Language, b.Language))
	}), int64(0)
	inShare := func(l *languageShare) bool { return l.Type == "programming" || l.Type == "markup" }
	for _, l := range list {
		if inShare(l) {
			counted += l.Bytes
		}
	}
	r := &report{title: "Languages", summary: "No file of a programming language was found.", data: map[string]any{"languages": list, "skipped": skipped}}
	var rows [][]string
	main := ""
	for _, l := range list {
		share := ""
		if inShare(l) {
			l.Share = float64(l.Bytes*10000/max(counted, 1)) / 100
			share = fmt.Sprintf("%.1f %%", l.Share)
			main = cmp.Or(main, fmt.Sprintf("%s (%.0f %%)", l.Language, l.Share))
		}
		rows = append(rows, []string{l.Language, l.Type, fmt.Sprint(l.Files), fmt.Sprint(l.Bytes), share})
	}
	if main != "" {
		r.summary = fmt.Sprintf("Mostly %s, %s in all.", main, count(len(list), "language", "languages"))
	}
	r.text.table([]string{"language", "type", "files#", "bytes#", "share#"}, rows)
	tellSkipped(&r.text, skipped)
	return r, err
}

// tellSkipped says which files were not counted.
func tellSkipped(m *markdown, skipped map[string]int) {
	if len(skipped) == 0 {
		return
	}
	m.line("")
	m.line("Not counted:")
	m.line("")
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		m.line("- %s that %s %s", count(skipped[why], "file", "files"), isAre(skipped[why]), why)
	}
}

func isAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}
