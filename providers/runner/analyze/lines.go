package analyze

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// syntax is what tells a comment from code. Only what changes the count of lines is known.
type syntax struct {
	line   []string    // begin a comment up to the end of the line
	block  [][2]string // begin and end a comment
	nested bool        // blocks within blocks
	quotes string      // begin and end a string of one line, in which \ escapes
	raw    [][2]string // begin and end a string of many lines
	doc    bool        // a raw string that begins a line is a comment, as in Python
}

var (
	cLike      = syntax{line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`}
	goLike     = syntax{line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`, raw: [][2]string{{"`", "`"}}}
	nestedLike = syntax{line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, nested: true, quotes: `"`, raw: [][2]string{{`"""`, `"""`}}}
	rustLike   = syntax{line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, nested: true, quotes: `"`, raw: [][2]string{{`r#"`, `"#`}}}
	hashLike   = syntax{line: []string{"#"}, quotes: `"'`}
	pyLike     = syntax{line: []string{"#"}, quotes: `"'`, raw: [][2]string{{`"""`, `"""`}, {"'''", "'''"}}, doc: true}
	sqlLike    = syntax{line: []string{"--"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`}
	lispLike   = syntax{line: []string{";"}, quotes: `"`}
	xmlLike    = syntax{block: [][2]string{{"<!--", "-->"}}}
	cssLike    = syntax{block: [][2]string{{"/*", "*/"}}, quotes: `"'`}
	percent    = syntax{line: []string{"%"}, quotes: `"`}
)

// syntaxes are the languages, by enry's names, that are counted. Others have lines only.
var syntaxes = map[string]syntax{
	"Go": goLike, "Go Module": cLike, "C": cLike, "C++": cLike, "C#": cLike, "Objective-C": cLike, "Java": cLike, "Protocol Buffer": cLike, "CUDA": cLike, "Cuda": cLike, "GLSL": cLike, "HLSL": cLike,
	"JavaScript": goLike, "TypeScript": goLike, "TSX": goLike, "JSX": goLike, "Dart": cLike, "Groovy": cLike, "Gradle": cLike, "Solidity": cLike, "Zig": {line: []string{"//"}, quotes: `"'`},
	"Kotlin": nestedLike, "Swift": nestedLike, "Scala": nestedLike, "Rust": rustLike, "D": cLike,
	"PHP":    {line: []string{"//", "#"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`},
	"Python": pyLike, "Starlark": pyLike, "Cython": pyLike,
	"Shell": hashLike, "Makefile": {line: []string{"#"}}, "Dockerfile": {line: []string{"#"}}, "YAML": hashLike, "TOML": hashLike, "R": hashLike, "Perl": hashLike, "CMake": hashLike, "Elixir": {line: []string{"#"}, quotes: `"`, raw: [][2]string{{`"""`, `"""`}}}, "Nix": {line: []string{"#"}, block: [][2]string{{"/*", "*/"}}, quotes: `"`}, "GraphQL": hashLike, "Fish": hashLike, "Awk": hashLike, "Tcl": hashLike, "Crystal": hashLike, "Nim": hashLike, "INI": {line: []string{";", "#"}},
	"Ruby": {line: []string{"#"}, block: [][2]string{{"\n=begin", "\n=end"}}, quotes: `"'`}, "PowerShell": {line: []string{"#"}, block: [][2]string{{"<#", "#>"}}, quotes: `"'`}, "Julia": {line: []string{"#"}, block: [][2]string{{"#=", "=#"}}, nested: true, quotes: `"`},
	"HCL": {line: []string{"#", "//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"`}, "Jsonnet": {line: []string{"#", "//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`},
	"SQL": sqlLike, "PLpgSQL": sqlLike, "PLSQL": sqlLike, "TSQL": sqlLike, "Lua": {line: []string{"--"}, block: [][2]string{{"--[[", "]]"}}, quotes: `"'`}, "Ada": {line: []string{"--"}, quotes: `"`}, "VHDL": {line: []string{"--"}, quotes: `"`},
	"Haskell": {line: []string{"--"}, block: [][2]string{{"{-", "-}"}}, nested: true, quotes: `"`}, "Elm": {line: []string{"--"}, block: [][2]string{{"{-", "-}"}}, nested: true, quotes: `"`},
	"OCaml": {block: [][2]string{{"(*", "*)"}}, nested: true, quotes: `"`}, "F#": {line: []string{"//"}, block: [][2]string{{"(*", "*)"}}, quotes: `"`}, "Pascal": {line: []string{"//"}, block: [][2]string{{"{", "}"}, {"(*", "*)"}}, quotes: `'`},
	"Clojure": lispLike, "Scheme": lispLike, "Common Lisp": lispLike, "Emacs Lisp": lispLike, "Racket": lispLike, "Assembly": {line: []string{";", "#"}},
	"Erlang": percent, "TeX": {line: []string{"%"}}, "MATLAB": percent, "Prolog": percent, "Fortran": {line: []string{"!"}, quotes: `"'`}, "Visual Basic .NET": {line: []string{"'"}, quotes: `"`}, "Vim Script": {line: []string{`"`}}, "Batchfile": {line: []string{"REM ", "rem ", "::"}},
	"HTML": xmlLike, "XML": xmlLike, "SVG": xmlLike, "Vue": xmlLike, "Svelte": xmlLike, "Markdown": xmlLike, "CSS": cssLike, "SCSS": {line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`}, "Less": {line: []string{"//"}, block: [][2]string{{"/*", "*/"}}, quotes: `"'`}, "Sass": {line: []string{"//"}},
	"JSON": {}, "CSV": {}, "Text": {}, "reStructuredText": {}, "AsciiDoc": {line: []string{"//"}}, "Go Checksums": {},
}

type lineCount struct {
	Language string `json:"language"`
	Files    int    `json:"files"`
	Code     int    `json:"code"`
	Comment  int    `json:"comment"` // lines with nothing but comments
	Blank    int    `json:"blank"`   // also within comments
}

func (c *lineCount) add(o lineCount) {
	c.Files, c.Code, c.Comment, c.Blank = c.Files+o.Files, c.Code+o.Code, c.Comment+o.Comment, c.Blank+o.Blank
}

// lines counts code, comments and blanks of what is written in this repository.
func lines(ctx context.Context, in *Input) (*report, error) {
	found, skipped, all := map[string]*lineCount{}, map[string]int{}, lineCount{Language: "all"}
	err := in.Tree.each(ctx, nil, func(f File, content []byte) {
		why, name := foreign(f, content), ""
		if why == "" {
			name = languageOf(f, content)
		}
		rules, known := syntaxes[name]
		if why == "" && !known {
			why = "of no language whose comments are known"
		}
		if why != "" {
			skipped[why]++
			return
		}
		c := countLines(content, &rules)
		c.Files = 1
		if found[name] == nil {
			found[name] = &lineCount{Language: name}
		}
		found[name].add(c)
		all.add(c)
	})
	list := slices.SortedFunc(maps.Values(found), func(a, b *lineCount) int {
		return cmp.Or(cmp.Compare(b.Code, a.Code), cmp.Compare(a.Language, b.Language))
	})
	r := &report{title: "Lines", data: map[string]any{"languages": list, "all": all, "skipped": skipped}}
	r.summary = fmt.Sprintf("%s of code, %d of comments, %d blank, in %s.", count(all.Code, "line", "lines"), all.Comment, all.Blank, count(all.Files, "file", "files"))
	var rows [][]string
	for _, c := range append(list, &all) {
		rows = append(rows, []string{c.Language, fmt.Sprint(c.Files), fmt.Sprint(c.Code), fmt.Sprint(c.Comment), fmt.Sprint(c.Blank)})
	}
	r.text.table([]string{"language", "files#", "code#", "comment#", "blank#"}, rows)
	tellSkipped(&r.text, skipped)
	return r, err
}

// scan is where the counter stands in a file.
type scan struct {
	end     string // of the comment or the string of many lines that is open; empty when none is
	begin   string // of the same comment, to count those within it
	depth   int
	comment bool
}

// countLines counts one file. A line with code and a comment is code.
func countLines(content []byte, rules *syntax) lineCount {
	var c lineCount
	var s scan
	for line := range bytes.Lines(content) {
		text := strings.TrimSpace(string(line))
		code, comment := s.line(text, rules)
		switch {
		case text == "":
			c.Blank++
		case code:
			c.Code++
		case comment:
			c.Comment++
		default:
			c.Code++
		}
	}
	return c
}

// line reads one line, and says what is in it.
func (s *scan) line(text string, rules *syntax) (code, comment bool) {
	if s.end == "" && strings.HasPrefix(text, "=begin") && len(rules.block) > 0 && rules.block[0][0] == "\n=begin" {
		*s = scan{end: "\n=end", comment: true}
	}
	if s.end == "\n=end" {
		if strings.HasPrefix(text, "=end") {
			*s = scan{}
		}
		return false, true
	}
	for at := 0; at < len(text); {
		rest := text[at:]
		if s.end != "" {
			at += s.inside(rest)
			code, comment = code || !s.comment, comment || s.comment
			if s.depth == 0 {
				*s = scan{}
			}
			continue
		}
		n, isCode, isComment := s.outside(rest, rules, !code)
		code, comment = code || isCode, comment || isComment
		at += n
	}
	return code, comment
}

// inside goes on to the end of what is open, or of the line. depth is 0 when it has ended. It looks at no character twice.
func (s *scan) inside(rest string) int {
	if s.begin == "" {
		if end := strings.Index(rest, s.end); end >= 0 {
			s.depth--
			return end + len(s.end)
		}
		return len(rest)
	}
	for at := 0; at < len(rest); {
		switch {
		case strings.HasPrefix(rest[at:], s.end):
			if at += len(s.end); s.depth == 1 {
				s.depth = 0
				return at
			}
			s.depth--
		case strings.HasPrefix(rest[at:], s.begin):
			s.depth, at = s.depth+1, at+len(s.begin)
		default:
			at++
		}
	}
	return len(rest)
}

// outside reads one thing: a comment, the beginning of one, a string, or a character.
func (s *scan) outside(rest string, rules *syntax, first bool) (n int, code, comment bool) {
	for _, b := range rules.block {
		if strings.HasPrefix(rest, b[0]) {
			*s = scan{end: b[1], depth: 1, comment: true}
			if rules.nested {
				s.begin = b[0]
			}
			return len(b[0]), false, true
		}
	}
	for _, b := range rules.raw {
		if strings.HasPrefix(rest, b[0]) {
			*s = scan{end: b[1], depth: 1, comment: rules.doc && first}
			return len(b[0]), !s.comment, s.comment
		}
	}
	for _, l := range rules.line {
		if strings.HasPrefix(rest, l) {
			return len(rest), false, true
		}
	}
	switch ch := rest[0]; {
	case ch == ' ' || ch == '\t':
		return 1, false, false
	case strings.IndexByte(rules.quotes, ch) >= 0:
		for i := 1; i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case ch:
				return i + 1, true, false
			}
		}
		return len(rest), true, false // it ends with the line, or is an apostrophe
	}
	return 1, true, false
}
