package analyze

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// tree writes files into a directory of its own.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		at := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o700))
		require.NoError(t, os.WriteFile(at, []byte(content), 0o600))
	}
	return dir
}

func input(t *testing.T, dir string, limits Limits) *Input {
	t.Helper()
	tr, err := Open(t.Context(), dir, limits)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tr.Close() })
	return &Input{Tree: tr, Name: "shop", Commit: "0123456789abcdef0123456789abcdef01234567"}
}

func analysis(t *testing.T, name string, in *Input) *Result {
	t.Helper()
	a, ok := Find(name)
	require.True(t, ok, name)
	r, err := a.Run(t.Context(), in)
	require.NoError(t, err)
	return r
}

func document(t *testing.T, r *Result, name string) string {
	t.Helper()
	for _, d := range r.Documents {
		if d.Name == name {
			return string(d.Body)
		}
	}
	require.FailNow(t, "no such document", name)
	return ""
}

// fake credentials are put together here, so that scanners of this repository find none.
func fake(parts ...string) string { return strings.Join(parts, "") }

func shop() map[string]string {
	return map[string]string{
		"LICENSE":        "Copyright 2026 Somebody\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this\nsoftware... The above copyright notice and this permission notice shall be included.\n",
		"README.md":      "# Shop\n<!-- a comment -->\n",
		"go.mod":         "module example.com/shop\n\ngo 1.26\n\nrequire (\n\tgithub.com/google/uuid v1.6.0\n\tgolang.org/x/sys v0.40.0 // indirect\n\texample.com/local v1.0.0\n)\n\nreplace example.com/local => ./local\n",
		"main.go":        "// SPDX-License-Identifier: Apache-2.0\n\npackage main\n\nimport (\n\t\"example.com/shop/store\"\n\t\"fmt\"\n)\n\n/* Two\n\nlines. */\nfunc main() { fmt.Println(store.Open(\"// no comment\")) } // one\n",
		"store/store.go": "package store\n\nimport \"github.com/google/uuid\"\n\nconst q = `\n-- raw\n// raw\n`\n\n// Open opens.\nfunc Open(string) string { return uuid.NewString() + q }\n",
		"web/app.ts":     "// app\nexport const a = 1;\n",
		"web/package-lock.json": `{"lockfileVersion": 3, "packages": {"": {"dependencies": {"left-pad": "^1"}}, "node_modules/left-pad": {"version": "1.3.0"},
 "node_modules/@types/node": {"version": "22.0.0", "dev": true}, "node_modules/a/node_modules/left-pad": {"version": "1.1.0"}}}`,
		"py/requirements.txt": "# of Python\nDjango==5.1\nrequests[socks] >= 2 ; python_version > '3'\n-r other.txt\n",
		"rs/Cargo.lock":       "version = 4\n\n[[package]]\nname = \"mine\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"serde\"\nversion = \"1.0.200\"\nsource = \"registry+x\"\nchecksum = \"aa\"\n",
		"py/app.py":           "\"\"\"Doc.\n\nMore.\n\"\"\"\nx = \"\"\"\n# text\n\"\"\"\n# comment\nkey = '" + fake("AK", "IA", "QWERTYUIOPASDFGH") + "'\n",
		"deploy/env":          "DATABASE=postgres://shop:" + fake("h7", "Gq2kz9") + "@db/shop\nTOKEN=\"" + fake("gh", "p_", "abcdefghijklmnopqrstuvwxyz0123456789") + "\"\nPASSWORD=\"changeme-please\"\n",
		"vendor/x/x.go":       "package x\n",
		"bin/tool":            "\x00\x01\x02",
	}
}

func history(_ context.Context, most int, each func(Commit)) (bool, error) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 0, time.UTC) }
	for _, c := range []Commit{
		{Hash: "c", When: day(3), Author: "a@example.com", Changes: []Change{{"main.go", 2, 1}, {"gone.go", 0, 9}}},
		{Hash: "b", When: day(2), Author: "b@example.com", Changes: []Change{{"main.go", 1, 1}, {"store/store.go", 11, 0}}},
		{Hash: "a", When: day(1), Author: "a@example.com", Changes: []Change{{"main.go", 10, 0}, {"gone.go", 9, 0}, {"bin/tool", 0, 0}}},
	} {
		each(c)
	}
	return most <= 3, nil
}

// Every document of every analysis, as it is written.
func TestDocuments(t *testing.T) {
	t.Parallel()
	dir := tree(t, shop())
	for _, a := range All {
		in := input(t, dir, Limits{})
		in.History = history
		r := analysis(t, a.Name, in)
		require.Equal(t, r, analysis(t, a.Name, func() *Input { i := input(t, dir, Limits{}); i.History = history; return i }()), "the same tree gives the same documents")
		for _, d := range r.Documents {
			golden := filepath.Join("testdata", d.Name)
			if *update {
				require.NoError(t, os.WriteFile(golden, d.Body, 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), string(d.Body), d.Name)
			if strings.HasSuffix(d.Name, ".json") {
				require.True(t, json.Valid(d.Body))
			}
		}
	}
}

func TestTheBillOfMaterialsIsCycloneDX(t *testing.T) {
	t.Parallel()
	text := document(t, analysis(t, "dependencies", input(t, tree(t, shop()), Limits{})), "dependencies.cdx.json")
	var bom cyclonedx.BOM
	require.NoError(t, cyclonedx.NewBOMDecoder(strings.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&bom))
	require.Equal(t, cyclonedx.SpecVersion1_6, bom.SpecVersion)
	var refs []string
	for _, c := range *bom.Components {
		refs = append(refs, c.PackageURL)
	}
	require.Equal(t, []string{
		"pkg:cargo/serde@1.0.200", "pkg:golang/github.com/google/uuid@v1.6.0", "pkg:golang/golang.org/x/sys@v0.40.0",
		"pkg:npm/%40types/node@22.0.0", "pkg:npm/left-pad@1.1.0", "pkg:npm/left-pad@1.3.0", "pkg:pypi/django@5.1", "pkg:pypi/requests",
	}, refs)
}

// A tree cannot have files read that are not in it, nor more than the limits allow, nor hold an analysis for longer than its context.
func TestBounds(t *testing.T) {
	t.Parallel()
	t.Run("NoLinkIsFollowed", func(t *testing.T) {
		t.Parallel()
		outside := tree(t, map[string]string{"secret.py": "key = '" + fake("AK", "IA", "QWERTYUIOPASDFGH") + "'\n"})
		dir := tree(t, map[string]string{"a.py": "x = 1\n"})
		require.NoError(t, os.Symlink(filepath.Join(outside, "secret.py"), filepath.Join(dir, "link.py")))
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folder")))
		require.NoError(t, os.Symlink(".", filepath.Join(dir, "loop")))
		in := input(t, dir, Limits{})
		require.Equal(t, []File{{"a.py", 6}}, in.Tree.Files)
		require.Equal(t, "No credential was found.", analysis(t, "secrets", in).Summary)
		_, err := in.Tree.read(File{Path: "link.py"}, 1<<20)
		require.Error(t, err, "also when it became a link after it was listed")
		_, err = in.Tree.read(File{Path: "folder/secret.py"}, 1<<20)
		require.Error(t, err)
		_, err = in.Tree.read(File{Path: "../" + filepath.Base(outside) + "/secret.py"}, 1<<20)
		require.Error(t, err)
	})
	t.Run("WhatIsLeftOutIsSaid", func(t *testing.T) {
		t.Parallel()
		dir := tree(t, map[string]string{"a.go": "package a\n" + strings.Repeat("// x\n", 100), "b.go": "package b\n", "c.go": "package c\n"})
		for said, limits := range map[string]Limits{
			"the tree has more than 2 files":                             {Files: 2},
			"of 1 file only the first 20 B were read":                    {FileBytes: 20},
			"more than 15 B were to be read, from `b.go` on nothing was": {Bytes: 15},
		} {
			r := analysis(t, "lines", input(t, dir, limits))
			require.Contains(t, document(t, r, "lines.md"), "**Not complete:** "+said)
			require.Contains(t, document(t, r, "lines.json"), said)
		}
		in := input(t, dir, Limits{Commits: 3})
		in.History = history
		require.Contains(t, document(t, analysis(t, "hotspots", in), "hotspots.md"), "the history has more than 3 commits")
	})
	t.Run("TheContextEnds", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		in := input(t, tree(t, shop()), Limits{})
		for _, a := range All {
			_, err := a.Run(ctx, in)
			require.ErrorIs(t, err, context.Canceled, a.Name)
		}
		_, err := Open(ctx, t.TempDir(), Limits{})
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Nothing that a repository names can leave its cell or its line.
func TestNamesAreHarmless(t *testing.T) {
	t.Parallel()
	in := input(t, tree(t, map[string]string{"a|b`c\n# d.go": "package x\n", "package.json": "{}", "x/\"]-->y[\"/z.go": "package z\n", "go.mod": "module m\n"}), Limits{})
	in.Name = "evil\n# name"
	in.History = func(_ context.Context, _ int, each func(Commit)) (bool, error) {
		for range 2 {
			each(Commit{Changes: []Change{{"a|b`c\n# d.go", 1, 1}}})
		}
		return false, nil
	}
	text := document(t, analysis(t, "hotspots", in), "hotspots.md")
	require.Contains(t, text, "# Hot spots of evil?# name\n")
	require.Contains(t, text, "| `` a\\|b`c?# d.go `` | 2 |")
	require.Contains(t, document(t, analysis(t, "structure", in), "structure.md"), `["x/#quot;]--#gt;y[#quot;"]`)
}

func TestEveryAnalysisIsFound(t *testing.T) {
	t.Parallel()
	for _, a := range All {
		found, ok := Find(a.Name)
		require.True(t, ok)
		require.Equal(t, a.Doc, found.Doc)
	}
	_, ok := Find("nothing")
	require.False(t, ok)
}

// A lock file says all or nothing: a large one is read whole, and what cannot be read is told, also by the bill of materials.
func TestLockFilesAreReadWhole(t *testing.T) {
	t.Parallel()
	var packages strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&packages, `, "node_modules/p%d": {"version": "1.0.%d", "resolved": "https://registry.example.com/p/-/p.tgz"}`, i, i)
	}
	lock := `{"lockfileVersion": 3, "packages": {"": {}` + packages.String() + `}}`
	require.Greater(t, len(lock), 1<<20)
	large := map[string]string{"package-lock.json": lock}
	broken := map[string]string{"package-lock.json": lock[:1000], "go.mod": "module m\n\nrequire example.com/a v1.0.0\n"}
	for name, tc := range map[string]struct {
		files   map[string]string
		limits  Limits
		summary string
		left    bool
	}{
		"large":     {large, Limits{}, "20000 dependencies in 1 file.", false},
		"too large": {large, Limits{Manifest: 1 << 20}, "0 dependencies in 0 files. Incomplete: 1 file that names dependencies could not be read.", true},
		"too many":  {large, Limits{Dependencies: 10_000}, "0 dependencies in 0 files. Incomplete: 1 file that names dependencies could not be read.", true},
		"no memory": {large, Limits{}.Within(32 << 20), "0 dependencies in 0 files. Incomplete: 1 file that names dependencies could not be read.", true},
		"broken":    {broken, Limits{}, "1 dependency in 1 file. Incomplete: 1 file that names dependencies could not be read.", true},
		"many":      {broken, Limits{Files: 1}, "1 dependency in 1 file. Incomplete: not all of the repository was read.", true},
		"none":      {map[string]string{"a": ""}, Limits{}, "No file that names dependencies was found.", false},
	} {
		r := analysis(t, "dependencies", input(t, tree(t, tc.files), tc.limits))
		require.Equal(t, tc.summary, r.Summary, name)
		require.Equal(t, tc.left, strings.Contains(document(t, r, "dependencies.cdx.json"), `"aggregate": "incomplete"`), name)
	}
}
