// Package docs_test checks the documents against the program. Blocks between "<!-- generated: … -->" and
// "<!-- end -->" are written anew with -update.
package docs_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/machines/diagram"
)

var update = flag.Bool("update", false, "write the generated blocks anew")

// root is the folder of the module, from this one.
const root = ".."

// documents are all Markdown files of the repository, by their paths from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"*.md", "*/*.md", root + "/*.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range files {
			found[f] = read(t, f)
		}
	}
	require.NotEmpty(t, found)
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

var block = regexp.MustCompile(`(?s)(<!-- generated: (\S+) (\S+) -->\n)(.*?)(<!-- end -->)`)

func TestGeneratedBlocksAreUpToDate(t *testing.T) {
	t.Parallel()
	blocks := 0
	for file, text := range documents(t) {
		got := block.ReplaceAllStringFunc(text, func(whole string) string {
			blocks++
			part := block.FindStringSubmatch(whole)
			return part[1] + generate(t, part[2], part[3]) + part[5]
		})
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			continue
		}
		if text != got {
			t.Errorf("%s is out of date: run go test ./docs -update and read the diff", file)
		}
	}
	require.NotZero(t, blocks)
}

// generate writes one block: of a machine, or of a file.
func generate(t *testing.T, what, of string) string {
	t.Helper()
	if what == "file" {
		return "```" + strings.TrimPrefix(filepath.Ext(of), ".") + "\n" + read(t, filepath.Join(root, of)) + "```\n"
	}
	if what == "settings" {
		return settings(t, of)
	}
	i := slices.IndexFunc(all.Machines(), func(m *machines.Machine) bool { return m.Name == of })
	require.GreaterOrEqual(t, i, 0, "there is no machine %s", of)
	m := all.Machines()[i]
	switch what {
	case "diagram":
		return "```mermaid\n" + diagram.Mermaid(m) + "```\n"
	case "states":
		return table([]string{"state", "meaning", "deadline"}, m.States, func(s machines.StateInfo) []string {
			return []string{code(s.Name), s.Doc, code(s.Deadline)}
		})
	case "commands":
		return table([]string{"command", "meaning", "body", "role", "from"}, m.Commands(), func(c machines.Command) []string {
			role := "operate"
			if c.Admin {
				role = "admin"
			}
			return []string{code(c.Name), c.Doc, fields(c.Body), role, from(m, c.Name)}
		})
	case "reports":
		reports := slices.DeleteFunc(slices.Clone(m.Inputs), func(c machines.Command) bool { return !c.Report })
		return table([]string{"report", "meaning", "accepted in"}, reports, func(c machines.Command) []string {
			return []string{code(c.Name), c.Doc, from(m, c.Name)}
		})
	case "effects":
		return table([]string{"effect", "meaning", "ends with", "attempts", "backoff", "timeout of one attempt"}, m.Effects, func(e machines.EffectInfo) []string {
			wait := fmt.Sprintf("up to %s, ×%g, at most %s", e.Retry.Base, e.Retry.Factor, e.Retry.Cap)
			return []string{code(e.Name), e.Doc, code(e.Done) + " or " + code(e.Failed), strconv.Itoa(e.Retry.Attempts), wait, e.Timeout.String()}
		})
	case "events":
		return table([]string{"event type", "class", "meaning"}, m.Events, func(e machines.EventType) []string {
			name := code(e.Name)
			if e.Subject != e.Name {
				name += " (subject " + code(e.Subject) + ")"
			}
			return []string{name, string(e.Class), e.Doc}
		})
	case "views":
		return table([]string{"view", "bucket", "content", "folded from"}, m.Views, func(v machines.View) []string {
			return []string{code(v.Name), code(m.BucketOf(v)), v.Doc, code(v.Events...)}
		})
	}
	require.Fail(t, "nothing writes a block of "+what)
	return ""
}

func table[T any](titles []string, rows []T, cells func(T) []string) string {
	lines := []string{"| " + strings.Join(titles, " | ") + " |", strings.Repeat("|---", len(titles)) + "|"}
	for _, r := range rows {
		lines = append(lines, strings.ReplaceAll("| "+strings.Join(cells(r), " | ")+" |", "|  |", "| – |"))
	}
	return strings.Join(lines, "\n") + "\n"
}

func code(names ...string) string {
	var quoted []string
	for _, n := range names {
		if n != "" {
			quoted = append(quoted, "`"+n+"`")
		}
	}
	return strings.Join(quoted, ", ")
}

// from lists the states that take an input; a name in brackets is the guard of all its edges there.
func from(m *machines.Machine, input string) string {
	guards, states := map[string][]string{}, []string{}
	for _, e := range m.Edges {
		if e.On != input {
			continue
		}
		state := cmp.Or(e.From, "none")
		if !slices.Contains(states, state) {
			states = append(states, state)
		}
		guards[state] = append(guards[state], e.If)
	}
	for i, s := range states {
		if !slices.Contains(guards[s], "") {
			states[i] += " [" + strings.Join(guards[s], ", ") + "]"
		}
	}
	return strings.Join(states, ", ")
}

// fields are the names of a body.
func fields(body any) string {
	if body == nil {
		return ""
	}
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(body)) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if strings.Contains(options, "omit") {
			name += "?"
		}
		names = append(names, name)
	}
	return code(names...)
}

// says reports a name that a document does not have in code quotes.
func says(t *testing.T, text, name string) {
	t.Helper()
	if !strings.Contains(text, "`"+name+"`") {
		t.Errorf("`%s` is missing", name)
	}
}

// The document of a machine is the one with its diagram.
func TestEveryMachineHasADocumentThatNamesEverything(t *testing.T) {
	t.Parallel()
	found := documents(t)
	for _, m := range all.Machines() {
		text := ""
		for _, d := range found {
			if strings.Contains(d, diagram.Mermaid(m)) {
				text = d
			}
		}
		require.NotEmpty(t, text, "no document has the diagram of %s", m.Name)
		for _, c := range m.Inputs {
			says(t, text, c.Name)
		}
		for _, e := range m.Events {
			says(t, text, e.Name)
		}
	}
}

// keys are the keys of a struct of the configuration, dotted; structs of other packages are found by their files.
func keys(t *testing.T, structs map[string]*ast.StructType, name, prefix string) []string {
	t.Helper()
	require.Contains(t, structs, name)
	var found []string
	for _, f := range structs[name].Fields.List {
		tag, err := strconv.Unquote(f.Tag.Value)
		require.NoError(t, err)
		own := reflect.StructTag(tag).Get("koanf")
		if own == "-" {
			continue // no setting
		}
		key := prefix + own
		typ := f.Type
		switch x := typ.(type) {
		case *ast.ArrayType:
			typ, key = x.Elt, key+"[]"
		case *ast.MapType:
			typ, key = x.Value, key+".<name>"
		}
		if sel, ok := typ.(*ast.SelectorExpr); ok {
			typ = sel.Sel
		}
		id, ok := typ.(*ast.Ident)
		if ok && structs[id.Name] != nil {
			found = append(found, keys(t, structs, id.Name, key+".")...)
		} else {
			found = append(found, strings.TrimSuffix(strings.TrimSuffix(key, "[]"), ".<name>"))
		}
	}
	return found
}

// structs are those of the files.
func structs(t *testing.T, files ...string) map[string]*ast.StructType {
	t.Helper()
	found := map[string]*ast.StructType{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	return found
}

// deploy/instar.yaml has every default, and is tested against the program.
func TestOperationsHasEveryKeyWithItsDefault(t *testing.T) {
	t.Parallel()
	text := read(t, "operations.md")
	var defaults map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, filepath.Join(root, "deploy", "instar.yaml"))), &defaults))
	require.Equal(t, "/var/lib/instar", defaults["data"])
	defaults["data"] = "./data" // the file has that of the unit
	for _, key := range keys(t, structs(t, "server/config/config.go", "server/config/cluster.go", "server/config/discovery.go", "server/config/limits.go", "server/config/outbox.go", "server/config/knative.go", "server/config/ended.go", "server/config/tasks.go", "server/config/tenants.go", "server/config/domains.go", "server/config/platform.go", "server/config/oidc.go", "streams/embedded/users.go"), "Config", "") {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta("`"+key+"`") + ` \|([^|]*)\|`).FindStringSubmatch(text)
		require.NotNil(t, row, "operations.md has no row for the key %s", key)
		if def, ok := dig(defaults, strings.Split(key, ".")); ok {
			require.Equal(t, said(def), strings.Trim(row[1], " `"), "default of %s", key)
		}
	}
}

// dig finds a single value; lists and mappings have no default in the table.
func dig(tree any, path []string) (any, bool) {
	for _, name := range path {
		m, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		tree = m[name]
	}
	_, deeper := tree.(map[string]any)
	return tree, tree != nil && !deeper
}

// said is a value as the table says it.
func said(v any) string {
	if v == "" {
		return "–"
	}
	return fmt.Sprint(v)
}

func TestOperationsHasEveryFlag(t *testing.T) {
	t.Parallel()
	text := read(t, "operations.md")
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "server", "config", "options.go"), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	flags := 0
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || lit.Type != nil || len(lit.Elts) != 3 { // the rows of the table options
			return true
		}
		name, err := strconv.Unquote(lit.Elts[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		says(t, text, "--"+name)
		flags++
		return true
	})
	require.NotZero(t, flags)
}

var metric = regexp.MustCompile(`"(instar_[a-z_]*[a-z])"`)

func TestOperationsHasEveryMetric(t *testing.T) {
	t.Parallel()
	text := read(t, "operations.md")
	metrics := 0
	for _, m := range sources(t, metric, "api/rest", "api/entities", "api/commands", "api/admin", "api/limits", "server", "server/instances", "server/relays", "providers/domain/proxy") {
		says(t, text, m)
		metrics++
	}
	require.Greater(t, metrics, 10)
}

var problem = regexp.MustCompile(`\b[cC]ode[A-Z][A-Za-z]+ += "([a-z-]+)"`)

func TestHTTPHasEveryProblem(t *testing.T) {
	t.Parallel()
	text := read(t, "http.md")
	codes := sources(t, problem, "api/problem", "machines")
	require.Greater(t, len(codes), 15)
	for _, c := range codes {
		says(t, text, c)
	}
}

// sources finds what a pattern captures in the Go files of folders, tests left out.
func sources(t *testing.T, pattern *regexp.Regexp, folders ...string) []string {
	t.Helper()
	var found []string
	for _, folder := range folders {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			for _, m := range pattern.FindAllStringSubmatch(read(t, file), -1) {
				found = append(found, m[1])
			}
			return nil
		}))
	}
	return found
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	quoted  = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
)

func TestLinksResolve(t *testing.T) {
	t.Parallel()
	docs := documents(t)
	for file, text := range docs {
		for _, m := range link.FindAllStringSubmatch(quoted.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			_, err := os.Stat(target)
			require.NotErrorIs(t, err, fs.ErrNotExist, "%s links to %s", file, m[1])
			if anchor != "" {
				require.Contains(t, anchors(read(t, target)), anchor, "%s links to %s", file, m[1])
			}
		}
	}
}

// anchors are those that GitHub gives to headings.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
				return r
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.ToLower(m[1]))
		all = append(all, anchor)
	}
	return all
}
