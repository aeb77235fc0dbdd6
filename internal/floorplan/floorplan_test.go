package floorplan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pkg is what go list says of a package, with paths from the root of the module.
type pkg struct {
	Dir, ImportPath                                              string
	Imports, TestImports, XTestImports                           []string
	GoFiles, CgoFiles, IgnoredGoFiles, TestGoFiles, XTestGoFiles []string
	Module                                                       struct{ Path string }
}

// path is where the package lies in the module.
func (p *pkg) path() string {
	return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
}

// files are those that are no tests, also of other build tags.
func (p *pkg) files() []string {
	all := slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles)
	return slices.DeleteFunc(all, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
}

// house is every package of the modules, those of bench and torture as if they were of the same one. They are listed once: that takes seconds.
func house(t *testing.T) []*pkg {
	t.Helper()
	all, err := listed()
	require.NoError(t, err)
	return all
}

var listed = sync.OnceValues(func() (all []*pkg, err error) {
	root := ""
	for _, module := range modules {
		ps, err := list(module)
		if err != nil {
			return nil, fmt.Errorf("cannot list the packages of the module in %q: %w", module, err)
		}
		root = cmp.Or(root, ps[0].Module.Path)
		for _, p := range ps {
			p.Module.Path = root
		}
		all = append(all, ps...)
	}
	return all, nil
})

// list is what go list says of a module; at least one package, if there is no error.
func list(module string) (all []*pkg, err error) {
	cmd := exec.CommandContext(context.Background(), "go", "list", "-e", "-json", "./...")
	cmd.Dir = filepath.Join("..", "..", module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{}
		switch err := dec.Decode(p); {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
}

// roomOf is the row with the longest path that fits.
func roomOf(path string) (room, bool) {
	var best room
	found := false
	for _, r := range plan {
		if within(path, r.path) && (!found || len(strings.TrimSuffix(r.path, "/...")) > len(strings.TrimSuffix(best.path, "/...")) || r.path == path) {
			best, found = r, true
		}
	}
	return best, found
}

// within reports whether a path fits a pattern of the table.
func within(path, pattern string) bool {
	if pattern == anything {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == tree || strings.HasPrefix(path, tree+"/")
	}
	return path == pattern
}

// below reports whether a path of another module begins with the one that is allowed.
func below(path, beginning string) bool {
	return within(path, beginning) || within(path, beginning+"/...")
}

func violations(p *pkg) []string {
	r, ok := roomOf(p.path())
	if !ok {
		return []string{fmt.Sprintf("%s is in no row of the table", p.path())}
	}
	var bad []string
	check := func(imports []string, test bool) {
		for _, path := range imports {
			if why := r.refuses(path, p, test); why != "" {
				bad = append(bad, fmt.Sprintf("%s (row %s) imports %s%s: %s", p.path(), r.path, path, map[bool]string{true: " in a test"}[test], why))
			}
		}
	}
	check(p.Imports, false)
	check(p.TestImports, true)
	check(p.XTestImports, true)
	return bad
}

// refuses says why the room has no door to a path, or nothing.
func (r room) refuses(path string, p *pkg, test bool) string {
	own, ours := strings.CutPrefix(path, p.Module.Path+"/")
	allowed := func(list []string, fits func(path, pattern string) bool, path string) bool {
		return slices.ContainsFunc(list, func(pattern string) bool { return fits(path, pattern) })
	}
	first, _, _ := strings.Cut(path, "/")
	switch {
	case ours && own == p.path() && test, ours && allowed(r.ours, within, own), ours && test && allowed(r.tests, within, own), ours && test && slices.Contains(tools, own),
		ours && test && slices.Contains(servers, own) && allowed(slices.Concat(r.ours, r.tests), within, "streams"):
		return ""
	case ours:
		return "not among " + strings.Join(r.ours, ", ")
	case !strings.Contains(first, "."): // the standard library
		if !test && (slices.Contains(dear, path) || allowed(r.banned, within, path)) {
			return "banned there"
		}
		return ""
	case allowed(r.outside, below, path), test && allowed(testLibraries, below, path):
		return ""
	}
	return "not among " + strings.Join(r.outside, ", ")
}

func TestImports(t *testing.T) {
	t.Parallel()
	var bad []string
	for _, p := range house(t) {
		bad = append(bad, violations(p)...)
	}
	require.Empty(t, bad, strings.Join(bad, "\n"))
}

// The table is of no use if it lets everything through.
func TestTheTableRefuses(t *testing.T) {
	t.Parallel()
	module := "example.org/m"
	for _, tc := range []struct {
		from, to string
		test, ok bool
	}{
		{from: "machines/service", to: "machines", ok: true},
		{from: "machines/service", to: "machines/task"},
		{from: "machines/all", to: "machines/task", ok: true},
		{from: "machines/service", to: "machines/transcript"},
		{from: "machines/service", to: "machines/transcript", test: true, ok: true},
		{from: "machines", to: "streams"},
		{from: "kv", to: "machines"},
		{from: "kv", to: "machines", test: true},
		{from: "kv", to: "streams", ok: true},
		{from: "streams", to: "kv"},
		{from: "streams/outbox", to: "streams", ok: true},
		{from: "providers/process", to: "streams"},
		{from: "providers/process", to: "providers", ok: true},
		{from: "providers", to: "machines/service", ok: true},
		{from: "consumers/effects", to: "providers", test: true},
		{from: "consumers/engine", to: "machines/service"},
		{from: "consumers/engine", to: "machines/service", test: true, ok: true},
		{from: "consumers/cluster", to: "consumers/engine"},
		{from: "consumers/engine", to: "consumers/effects"},
		{from: "consumers/engine", to: "api"},
		{from: "api", to: "consumers"},
		{from: "api", to: "providers"},
		{from: "cmd/instar", to: "providers", ok: true},
		{from: "cmd/instar/internal/form", to: "machines"},
		{from: "api", to: "api", test: true, ok: true},
		{from: "elsewhere", to: "machines"},
	} {
		p := &pkg{ImportPath: module + "/" + tc.from, Imports: []string{module + "/" + tc.to}}
		if tc.test {
			p.Imports, p.XTestImports = nil, p.Imports
		}
		p.Module.Path = module
		require.Equal(t, tc.ok, len(violations(p)) == 0, "%v", tc)
	}
	for _, tc := range []struct {
		from, to string
		test, ok bool
	}{
		{from: "machines", to: "github.com/looplab/fsm", ok: true},
		{from: "machines/service", to: "github.com/looplab/fsm"},
		{from: "machines", to: "time", ok: true},
		{from: "machines", to: "net/http"},
		{from: "machines", to: "os"},
		{from: "machines", to: "os", test: true, ok: true},
		{from: "streams", to: pgx},
		{from: "streams/outbox", to: pgx + "/pgxpool", ok: true},
		{from: "providers", to: natsgo},
		{from: "kv", to: nats + "/nats-server/v2/server"},
		{from: "kv", to: nats + "/nats-server/v2/server", test: true, ok: true},
		{from: "kv", to: natsgo + "/jetstream", ok: true},
		{from: "consumers", to: natsgo + "-fork"},
		{from: "cmd/instar", to: "anything.org/x", ok: true},
	} {
		p := &pkg{ImportPath: module + "/" + tc.from, Imports: []string{tc.to}}
		if tc.test {
			p.Imports, p.TestImports = nil, p.Imports
		}
		p.Module.Path = module
		require.Equal(t, tc.ok, len(violations(p)) == 0, "%v", tc)
	}
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		for _, f := range p.files() {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if n := bytes.Count(text, []byte("\n")); n > maxLines {
				t.Errorf("%s/%s has %d lines, more than %d: split it by reason to change", p.path(), f, n, maxLines)
			}
		}
	}
}

func TestPackagesAreSmall(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		lines := 0
		for _, f := range p.files() {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if !generated.Match(text) {
				lines += bytes.Count(text, []byte("\n"))
			}
		}
		if lines > maxPackageLines {
			t.Errorf("%s has %d lines, more than %d: take it apart", p.path(), lines, maxPackageLines)
		}
	}
}

// generated is the line by which files say that a program has written them.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestGeneratedFilesAreTold(t *testing.T) {
	t.Parallel()
	require.True(t, generated.MatchString("// Code generated by stringer; DO NOT EDIT.\npackage x\n"))
	require.False(t, generated.MatchString("package x\n"))
}

// The linters that run here do not know the directives of others: gosec is told by "#nosec", staticcheck by "//lint:ignore".
func TestNoDirectivesOfLintersThatDoNotRun(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		for _, f := range slices.Concat(p.files(), p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			if bytes.Contains(text, []byte("//no"+"lint")) {
				t.Errorf("%s/%s has a directive of a linter that does not run", p.path(), f)
			}
		}
	}
}

// Whoever reads or writes a stream or a bucket goes through streams and kv, which know its names and the API of JetStream. Programs that look at a
// server from outside, as any client of NATS does, write them down, and so does the model of one.
func TestStreamsAndBucketsHaveOneDoor(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		if room, _, _ := strings.Cut(p.path(), "/"); slices.Contains([]string{"streams", "kv", "torture", "bench"}, room) && !within(p.path(), "streams/outbox/relay/...") || within(p.path(), "internal/simulation/model/...") {
			continue
		}
		for _, f := range p.files() {
			text, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			for _, name := range []string{`"$K` + `V.`, `"K` + `V_`, `"$J` + `S.`} {
				if bytes.Contains(text, []byte(name)) {
					t.Errorf("%s/%s has a name that begins with %s: streams and kv have functions for it", p.path(), f, name)
				}
			}
		}
	}
}

func TestPackagesAreDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		var in []string
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.PackageClauseOnly|parser.ParseComments)
			require.NoError(t, err)
			if file.Doc != nil {
				in = append(in, f)
			}
		}
		switch {
		case len(in) != 1:
			t.Errorf("%s has a package comment in %d files %v, it needs one", p.path(), len(in), in)
		case slices.Contains(documented, p.path()) && in[0] != "doc.go":
			t.Errorf("%s has its package comment in %s, it belongs into doc.go", p.path(), in[0])
		}
	}
}

func TestMachinesArePure(t *testing.T) {
	t.Parallel()
	for _, p := range house(t) {
		if !within(p.path(), "machines/...") || slices.Contains([]string{"machines/machinetest", "machines/transcript"}, p.path()) { // those run tests
			continue
		}
		for _, f := range p.files() {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			for _, found := range impurities(file) {
				t.Errorf("%s: %s", fset.Position(found.at), found.what)
			}
		}
	}
}

type impurity struct {
	at   token.Pos
	what string
}

// impurities finds clocks, goroutines and packages that do something.
func impurities(file *ast.File) []impurity {
	names := map[string]string{} // of the imports, as the file calls them
	var found []impurity
	for _, s := range file.Imports {
		path, _ := strconv.Unquote(s.Path.Value) // the parser has checked it
		name := path[strings.LastIndex(path, "/")+1:]
		if s.Name != nil {
			name = s.Name.Name
		}
		names[name] = path
		if name == "." && path == "time" {
			found = append(found, impurity{s.Pos(), "imports time without its name"})
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, impurity{n.Pos(), "starts a goroutine"})
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok {
				break
			}
			path := names[x.Name]
			if path == "time" && slices.Contains(clocks, n.Sel.Name) {
				found = append(found, impurity{n.Pos(), "looks at the clock: time." + n.Sel.Name})
			}
			if path != "" && slices.ContainsFunc(impure, func(pattern string) bool { return within(path, pattern) }) {
				found = append(found, impurity{n.Pos(), "does something: " + path + "." + n.Sel.Name})
			}
		}
		return true
	})
	return found
}

func TestImpuritiesAreFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
import ("os"; clock "time"; "log/slog"; "net/http")
func f() { go f(); _ = clock.Now(); _ = os.Args; slog.Info(""); var _ http.Client; _ = clock.Second }
`, parser.SkipObjectResolution)
	require.NoError(t, err)
	var what []string
	for _, f := range impurities(file) {
		what = append(what, f.what)
	}
	require.Equal(t, []string{"starts a goroutine", "looks at the clock: time.Now", "does something: os.Args", "does something: log/slog.Info", "does something: net/http.Client"}, what)
}
