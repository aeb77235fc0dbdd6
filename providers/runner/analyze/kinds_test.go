package analyze

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountLines(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		language, text       string
		code, comment, blank int
	}{
		"a string is no comment":      {"Go", "a := \"/* x\"\nb := 1\n", 2, 0, 0},
		"an escape does not end it":   {"C", "s = \"\\\"/*\";\nx();\n", 2, 0, 0},
		"a block over lines":          {"C", "/* a\n\n b */\nx(); /* c */\n/* d */ y();\n", 2, 2, 1},
		"a block with code after it":  {"C", "/* a\n*/ x();\n", 1, 1, 0},
		"nested in Rust":              {"Rust", "/* a /* b */\n still */\nfn x() {}\n", 1, 2, 0},
		"not nested in C":             {"C", "/* a /* b */\nx();\n", 1, 1, 0},
		"raw strings of Go":           {"Go", "x := `\n// a\n\n`\n", 3, 0, 1},
		"docstrings":                  {"Python", "def f():\n  '''Says.'''\n  x = '''no\n# doc'''\n", 3, 1, 0},
		"shell":                       {"Shell", "#!/bin/sh\n# a\necho '# b' # c\n", 1, 2, 0},
		"html":                        {"HTML", "<p>\n<!-- a\nb -->\n</p>\n", 2, 2, 0},
		"ruby":                        {"Ruby", "=begin\na\n=end\nputs 1\n", 1, 3, 0},
		"lua":                         {"Lua", "--[[ a\nb ]]\n-- c\nx = 1\n", 1, 3, 0},
		"no end of line":              {"Go", "package x", 1, 0, 0},
		"an apostrophe ends its line": {"Makefile", "# it's\nx: y\n", 1, 1, 0},
		"json has no comments":        {"JSON", "{\n\n}\n", 2, 0, 1},
	} {
		rules, ok := syntaxes[c.language]
		require.True(t, ok, c.language)
		got := countLines([]byte(c.text), &rules)
		require.Equal(t, lineCount{Code: c.code, Comment: c.comment, Blank: c.blank}, got, name)
	}
}

// The texts are those of licences that lie on this machine, and passages of others.
func TestLicences(t *testing.T) {
	t.Parallel()
	read := func(path ...string) string {
		raw, err := os.ReadFile(filepath.Join(path...))
		require.NoError(t, err)
		return string(raw)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	require.Equal(t, []string{"BSD-3-Clause"}, licencesOf(read(strings.TrimSpace(string(root)), "LICENSE")))
	require.Equal(t, []string{"Apache-2.0"}, licencesOf(read("..", "..", "..", "LICENSE")))
	for text, want := range map[string][]string{
		"GNU GENERAL PUBLIC LICENSE\n  Version 3, 29 June 2007\n ... version 3 of the GNU Affero General Public License": {"GPL-3.0"},
		"GNU AFFERO GENERAL PUBLIC LICENSE\nVersion 3, 19 November 2007":                                                 {"AGPL-3.0"},
		"GNU LESSER GENERAL PUBLIC LICENSE\nVersion 2.1, February 1999":                                                  {"LGPL-2.1"},
		"Mozilla Public License Version 2.0\n=====":                                                                      {"MPL-2.0"},
		strings.ToUpper(isc) + ", provided that the above copyright notice and this permission notice appear":            {"ISC"},
		isc:                           {"0BSD"},
		mit + "\n\n---\n" + bsd + ".": {"BSD-2-Clause", "MIT-0"},
		"All rights reserved.":        nil,
	} {
		require.Equal(t, want, licencesOf(text), text)
	}
	for head, want := range map[string][]string{
		"// SPDX-License-Identifier: MIT OR Apache-2.0\n": {"MIT OR Apache-2.0"},
		"/* SPDX-License-Identifier: GPL-2.0-only */\n":   {"GPL-2.0-only"},
		"# under the terms of the GNU General Public License as published by\n# the Free Software Foundation; either version 2 of the License, or\n# (at your option) any later version.\n": {"GPL-2.0-or-later"},
		"// Licensed under the Apache License, Version 2.0 (the \"License\");\n":                                                                                                            {"Apache-2.0"},
		strings.Repeat("x\n", 50) + "// SPDX-License-Identifier: MIT\n":                                                                                                                     nil,
	} {
		require.Equal(t, want, headerIDs([]byte(head)), head)
	}
}

func TestLockFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		want       []string // package URLs, + direct, ~ dev
	}{
		"npm 1":    {"package-lock.json", `{"dependencies":{"a":{"version":"1.0.0","dependencies":{"b":{"version":"2.0.0","dev":true}}}}}`, []string{"+pkg:npm/a@1.0.0", "~pkg:npm/b@2.0.0"}},
		"link":     {"package-lock.json", `{"packages":{"":{},"node_modules/a":{"link":true},"pkgs/a":{"version":"1.0.0"}}}`, nil},
		"yarn 1":   {"yarn.lock", "# yarn lockfile v1\n\n\"@babel/core@^7.0.0\", \"@babel/core@^7.1.0\":\n  version \"7.2.0\"\n  dependencies:\n    x \"1\"\nx@1:\n  version \"1.0.0\"\n", []string{"pkg:npm/%40babel/core@7.2.0", "pkg:npm/x@1.0.0"}},
		"yarn 2":   {"yarn.lock", "__metadata:\n  version: 8\n\n\"a@npm:^1\":\n  version: 1.2.0\n\n\"own@workspace:.\":\n  version: 0.0.0\n", []string{"pkg:npm/a@1.2.0"}},
		"poetry":   {"poetry.lock", "[[package]]\nname = \"Zope.Interface\"\nversion = \"5.0\"\n\n[package.dependencies]\nname = \"no\"\n", []string{"pkg:pypi/zope-interface@5.0"}},
		"uv":       {"uv.lock", "[[package]]\nname = \"own\"\nversion = \"0.1\"\nsource = { editable = \".\" }\n\n[[package]]\nname = \"a\"\nversion = \"1\"\nsource = { registry = \"x\" }\n", []string{"pkg:pypi/a@1"}},
		"gems":     {"Gemfile.lock", "GEM\n  remote: x\n  specs:\n    rack (3.0.0)\n    rake (13.0)\n      rack (>= 1)\n\nDEPENDENCIES\n  rake\n", []string{"pkg:gem/rack@3.0.0", "+pkg:gem/rake@13.0"}},
		"composer": {"composer.lock", `{"packages":[{"name":"a/b","version":"1.0"}],"packages-dev":[{"name":"c/d","version":"2.0"}]}`, []string{"pkg:composer/a/b@1.0", "~pkg:composer/c/d@2.0"}},
		"replaced": {"go.mod", "module m\nrequire a.com/b v1.0.0\nreplace a.com/b => c.com/d v1.1.0\n", []string{"+pkg:golang/c.com/d@v1.1.0"}},
	} {
		list, err := manifest(File{Path: c.file})([]byte(c.text))
		require.NoError(t, err, name)
		var got []string
		for _, d := range list {
			got = append(got, map[bool]string{true: "+"}[d.Direct]+map[bool]string{true: "~"}[d.Dev]+d.purl())
		}
		require.Equal(t, c.want, got, name)
	}
	for file, text := range map[string]string{"package-lock.json": "{", "go.mod": "require (", "composer.lock": "[]"} {
		in := input(t, tree(t, map[string]string{file: text}), Limits{})
		require.Contains(t, document(t, analysis(t, "dependencies", in), "dependencies.md"), "Not readable: `"+file+"`")
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	long := "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hJ6lM9oR"
	for text, rule := range map[string]string{
		"aws_secret_access_key = " + long[:40]:             "AWS secret access key",
		fake("xo", "xb-", "123456789012-abcdefghijkl"):     "Slack token",
		fake("glp", "at-", "abcdefghij0123456789"):         "GitLab token",
		fake("sk", "_live_", "abcdefghij0123456789"):       "Stripe key",
		fake("-----BEGIN RSA PRIV", "ATE KEY-----"):        "private key",
		"url: amqp://u:" + fake("s3", "cr3t") + "@mq":      "password in a URL",
		`"apiKey": "` + long[:24] + `"`:                    "assigned secret",
		`password = "correct-horse-battery"`:               "",
		`token: "${TOKEN_FROM_ENV_123}"`:                   "",
		"postgres://user:password@localhost/db":            "",
		"https://example.com/a:b@c":                        "",
		`sha = "0123456789abcdef0123456789abcdef01234567"`: "",
		fake("AK", "IA", "QWERTYUIOPASDFGH") + "X":         "",
	} {
		found := secretsOf([]byte("\n" + text + "\n"))
		if rule == "" {
			require.Empty(t, found, text)
			continue
		}
		require.Len(t, found, 1, text)
		require.Equal(t, rule, found[0].Rule)
		require.Equal(t, 2, found[0].Line)
		require.NotContains(t, found[0].Masked, long[:8])
	}
	require.Equal(t, "got gh"+"p_… (40 characters) and postgres://u:… (8 characters)@h/d", Mask("got "+fake("gh", "p_", strings.Repeat("a1", 18))+" and postgres://u:"+fake("pass", "word")+"@h/d"))
	require.Equal(t, "nothing here", Mask("nothing here"))
}
