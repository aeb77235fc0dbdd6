package analyze

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A licence is recognized by passages that its text has, and by some that it has not: wording that tells it from its relatives and survives
// new line breaks, quotes and names of owners. The passages are normalized as the texts are.
type licence struct {
	id   string // of SPDX
	has  []string
	not  []string
	also bool // may be found beside others in one text
}

// knownLicences are in the order in which they are tried. The ids of the GNU licences have neither -only nor -or-later: their text does not tell.
var knownLicences = []licence{
	{id: "AGPL-3.0", has: []string{"gnu affero general public license version 3 19 november 2007"}},
	{id: "LGPL-3.0", has: []string{"gnu lesser general public license version 3 29 june 2007"}},
	{id: "LGPL-2.1", has: []string{"gnu lesser general public license version 2 1 february 1999"}},
	{id: "GPL-3.0", has: []string{"gnu general public license version 3 29 june 2007"}},
	{id: "GPL-2.0", has: []string{"gnu general public license version 2 june 1991"}},
	{id: "MPL-2.0", has: []string{"mozilla public license version 2 0"}},
	{id: "EPL-2.0", has: []string{"eclipse public license v 2 0"}},
	{id: "EUPL-1.2", has: []string{"european union public licence v 1 2"}},
	{id: "BUSL-1.1", has: []string{"business source license 1 1", "change date"}},
	{id: "SSPL-1.0", has: []string{"server side public license version 1"}},
	{id: "Elastic-2.0", has: []string{"elastic license 2 0"}},
	{id: "CC-BY-SA-4.0", has: []string{"attribution sharealike 4 0 international"}},
	{id: "CC-BY-4.0", has: []string{"attribution 4 0 international"}, not: []string{"attribution sharealike 4 0"}},
	{id: "CC0-1.0", has: []string{"cc0 1 0 universal"}},
	{id: "Unlicense", has: []string{"this is free and unencumbered software released into the public domain"}},
	{id: "OFL-1.1", has: []string{"sil open font license version 1 1"}},
	{id: "Artistic-2.0", has: []string{"the artistic license 2 0"}},
	{id: "WTFPL", has: []string{"do what the fuck you want to public license"}},
	{id: "Apache-2.0", has: []string{"apache license version 2 0 january 2004", "grant of patent license"}},
	{id: "BSL-1.0", has: []string{"boost software license version 1 0"}},
	{id: "PostgreSQL", has: []string{"permission to use copy modify and distribute this software and its documentation for any purpose without fee", "in no event shall"}},
	{id: "Zlib", has: []string{"altered source versions must be plainly marked as such"}},
	{id: "BSD-4-Clause", has: []string{bsd, "all advertising materials mentioning features"}, also: true},
	{id: "BSD-3-Clause", has: []string{bsd, "endorse or promote products derived from"}, not: []string{"all advertising materials mentioning features"}, also: true},
	{id: "BSD-2-Clause", has: []string{bsd}, not: []string{"endorse or promote products derived from", "all advertising materials mentioning features"}, also: true},
	{id: "MIT", has: []string{mit, "the above copyright notice and this permission notice"}, also: true},
	{id: "MIT-0", has: []string{mit}, not: []string{"the above copyright notice and this permission notice"}, also: true},
	{id: "ISC", has: []string{isc, "provided that the above copyright notice and this permission notice"}, also: true},
	{id: "0BSD", has: []string{isc}, not: []string{"provided that the above copyright notice"}, also: true},
}

const (
	bsd = "redistribution and use in source and binary forms with or without modification are permitted provided that the following conditions are met"
	mit = "permission is hereby granted free of charge to any person obtaining a copy"
	isc = "permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted"
)

var (
	notWords    = regexp.MustCompile(`[^a-z0-9]+`)
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense|copyright)([-_.].*)?$|\.(licen[cs]e)$`)
	spdxHeader  = regexp.MustCompile(`SPDX-License-Identifier:[ \t]*([A-Za-z0-9.+()\- ]+)`)
	orLater     = regexp.MustCompile(`or at your option any later version`)
)

// headerLines are where the header of a source file is looked for.
const headerLines = 40

// normalize leaves words: the text may be quoted, broken or decorated in any way.
func normalize(text string) string {
	text = strings.ReplaceAll(strings.ToLower(text), "&quot;", " ")
	return strings.TrimSpace(notWords.ReplaceAllString(text, " "))
}

// licencesOf are the ids of the licences in a text; of the long ones, which quote others, the first.
func licencesOf(text string) []string {
	text = " " + normalize(text) + " "
	var ids []string
	for _, l := range knownLicences {
		if len(ids) > 0 && !l.also {
			continue
		}
		if slices.ContainsFunc(l.has, func(p string) bool { return !strings.Contains(text, p) }) || slices.ContainsFunc(l.not, func(p string) bool { return strings.Contains(text, p) }) {
			continue
		}
		if ids = append(ids, l.id); !l.also {
			break
		}
	}
	return ids
}

type licenceText struct {
	Path string   `json:"path"`
	IDs  []string `json:"ids"` // empty when it is none of those that are known
}

type licenceUse struct {
	ID    string   `json:"id"`
	Files int      `json:"files"`
	Paths []string `json:"paths"` // the first few
}

const maxPaths = 10

// licences reports the texts in files whose name says so, and the ids in the headers of all others.
func licences(ctx context.Context, in *Input) (*report, error) {
	var texts []licenceText
	uses := map[string]*licenceUse{}
	err := in.Tree.each(ctx, nil, func(f File, content []byte) {
		if licenceFile.MatchString(path.Base(f.Path)) || path.Base(path.Dir(f.Path)) == "LICENSES" {
			texts = append(texts, licenceText{f.Path, licencesOf(string(content))})
			return
		}
		for _, id := range headerIDs(content) {
			if uses[id] == nil {
				uses[id] = &licenceUse{ID: id}
			}
			uses[id].Files++
			if len(uses[id].Paths) < maxPaths {
				uses[id].Paths = append(uses[id].Paths, f.Path)
			}
		}
	})
	slices.SortFunc(texts, func(a, b licenceText) int {
		return cmp.Or(cmp.Compare(depth(a.Path), depth(b.Path)), cmp.Compare(a.Path, b.Path))
	})
	headers := slices.SortedFunc(maps.Values(uses), func(a, b *licenceUse) int { return cmp.Or(cmp.Compare(b.Files, a.Files), cmp.Compare(a.ID, b.ID)) })
	r := &report{title: "Licences", summary: "No licence was found at the root.", data: map[string]any{"texts": texts, "headers": headers}}
	var own []string
	unknown := false
	for _, t := range texts {
		if depth(t.Path) == 0 {
			own = append(own, t.IDs...)
			unknown = unknown || len(t.IDs) == 0
		}
	}
	slices.Sort(own)
	switch own = slices.Compact(own); {
	case len(own) > 0:
		r.summary = fmt.Sprintf("The root has the text of %s.", strings.Join(own, ", "))
	case unknown:
		r.summary = "The root has a licence text that is none of the common ones."
	}
	var rows [][]string
	for _, t := range texts {
		rows = append(rows, []string{code(t.Path), cmp.Or(strings.Join(t.IDs, ", "), "not known")})
	}
	r.text.line("## Texts")
	r.text.line("")
	r.text.table([]string{"file", "SPDX"}, rows)
	r.text.line("")
	r.text.line("## Headers of files")
	r.text.line("")
	rows = nil
	for _, u := range headers {
		rows = append(rows, []string{code(u.ID), fmt.Sprint(u.Files), code(u.Paths[0])})
	}
	r.text.table([]string{"SPDX", "files#", "for example"}, rows)
	r.text.line("")
	r.text.line("The text of a GNU licence does not tell whether later versions are allowed: its id has neither -only nor -or-later, unless a header says so.")
	return r, err
}

// headerIDs are the licences that the beginning of a file names: by SPDX ids, or else by a known text in it.
func headerIDs(content []byte) []string {
	end, n := 0, 0
	for line := range bytes.Lines(content) {
		if n++; n > headerLines || end+len(line) > maxLine {
			break
		}
		end += len(line)
	}
	head := content[:end]
	var ids []string
	for _, m := range spdxHeader.FindAllSubmatch(head, -1) {
		if id := strings.Trim(string(m[1]), " .-"); id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		ids = grants(string(head))
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// grants are the licences that a header refers to in words.
func grants(head string) []string {
	text := normalize(head)
	later := "-only"
	if orLater.MatchString(text) {
		later = "-or-later"
	}
	for _, g := range []struct{ passage, id string }{
		{"gnu affero general public license as published by the free software foundation either version 3", "AGPL-3.0" + later},
		{"gnu lesser general public license as published by the free software foundation either version 3", "LGPL-3.0" + later},
		{"gnu lesser general public license as published by the free software foundation either version 2 1", "LGPL-2.1" + later},
		{"gnu general public license as published by the free software foundation either version 3", "GPL-3.0" + later},
		{"gnu general public license as published by the free software foundation either version 2", "GPL-2.0" + later},
		{"licensed under the apache license version 2 0", "Apache-2.0"},
		{"subject to the terms of the mozilla public license v 2 0", "MPL-2.0"},
	} {
		if strings.Contains(text, g.passage) {
			return []string{g.id}
		}
	}
	return licencesOf(head)
}
