package analyze

import (
	"cmp"
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/modfile"
)

type folder struct {
	Path  string `json:"path"`
	Files int    `json:"files"` // with those in folders below
	Bytes int64  `json:"bytes"`
}

type goPackage struct {
	Path    string   `json:"path"` // folder, from the root
	Name    string   `json:"name"`
	Files   int      `json:"files"`
	Tests   int      `json:"tests"`
	Imports []string `json:"imports"` // folders of packages of this repository
	Others  int      `json:"others"`  // imported packages of elsewhere, without the standard library
}

// notable are files that tell what a repository is, wherever they are.
var notable = regexp.MustCompile(`(?i)^(readme|contributing|changelog|security|code_of_conduct|licen[cs]e|copying)(\..*)?$|^(makefile|dockerfile|compose\.ya?ml|docker-compose\.ya?ml|package\.json|go\.mod|cargo\.toml|pyproject\.toml|pom\.xml|build\.gradle(\.kts)?|cmakelists\.txt|\.gitlab-ci\.yml|jenkinsfile|openapi\.(ya?ml|json))$`)

// structure is an overview: what lies where, and how the packages of Go modules depend on each other.
func structure(ctx context.Context, in *Input) (*report, error) {
	folders, files := map[string]*folder{}, []string{}
	total := folder{}
	for _, f := range in.Tree.Files {
		total.Files, total.Bytes = total.Files+1, total.Bytes+f.Size
		if notable.MatchString(path.Base(f.Path)) && depth(f.Path) <= 2 && len(files) < 100 || strings.HasPrefix(f.Path, ".github/workflows/") {
			files = append(files, f.Path)
		}
		top, _, below := strings.Cut(f.Path, "/")
		if !below {
			top = "."
		}
		if folders[top] == nil {
			folders[top] = &folder{Path: top}
		}
		folders[top].Files++
		folders[top].Bytes += f.Size
	}
	list := slices.SortedFunc(maps.Values(folders), func(a, b *folder) int { return cmp.Compare(a.Path, b.Path) })
	packages, err := goPackages(ctx, in.Tree)
	r := &report{title: "Structure", data: map[string]any{"folders": list, "notable": files, "goPackages": packages}}
	r.summary = fmt.Sprintf("%s, %s, %s of Go.", count(total.Files, "file", "files"), size(total.Bytes), count(len(packages), "package", "packages"))
	var rows [][]string
	for _, f := range list {
		rows = append(rows, []string{code(f.Path), fmt.Sprint(f.Files), fmt.Sprint(f.Bytes)})
	}
	r.text.line("## Folders")
	r.text.line("")
	r.text.table([]string{"folder", "files#", "bytes#"}, rows)
	if len(files) > 0 {
		r.text.line("")
		r.text.line("## Notable files")
		r.text.line("")
		for _, f := range files {
			r.text.line("- %s", code(f))
		}
	}
	if len(packages) > 0 {
		r.text.line("")
		r.text.line("## Packages of Go")
		r.text.line("")
		graph(&r.text, packages)
	}
	return r, err
}

// goPackages reads the imports of all Go files, also of several modules in one repository. Files that do not parse are left out.
func goPackages(ctx context.Context, tree *Tree) ([]*goPackage, error) {
	modules := map[string]string{} // import path to folder
	if err := tree.each(ctx, named("go.mod"), func(f File, content []byte) {
		if name := modfile.ModulePath(content); name != "" && !vendored(f.Path) {
			modules[name] = path.Dir(f.Path)
		}
	}); err != nil {
		return nil, err
	}
	found, imports := map[string]*goPackage{}, map[string]map[string]bool{}
	goFile := func(f File) bool { return strings.HasSuffix(f.Path, ".go") && !vendored(f.Path) }
	err := tree.each(ctx, goFile, func(f File, content []byte) {
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Path, content, parser.ImportsOnly)
		if err != nil {
			return
		}
		dir := path.Dir(f.Path)
		p := found[dir]
		if p == nil {
			p = &goPackage{Path: dir, Imports: []string{}}
			found[dir], imports[dir] = p, map[string]bool{}
		}
		if strings.HasSuffix(f.Path, "_test.go") {
			p.Tests++
			return
		}
		p.Files++
		if p.Name == "" || p.Name == "main" { // a file of another package is for a generator, such as go run gen.go
			p.Name = parsed.Name.Name
		}
		for _, i := range parsed.Imports {
			if name, err := strconv.Unquote(i.Path.Value); err == nil {
				imports[dir][name] = true
			}
		}
	})
	for dir, p := range found {
		for name := range imports[dir] {
			if to, ours := within(modules, name); ours {
				if to != dir && found[to] != nil {
					p.Imports = append(p.Imports, to)
				}
			} else if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
				p.Others++
			}
		}
		slices.Sort(p.Imports)
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *goPackage) int { return cmp.Compare(a.Path, b.Path) }), err
}

// within is the folder of an import path, by the longest module that has it.
func within(modules map[string]string, name string) (string, bool) {
	for at := name; ; {
		if dir, ok := modules[at]; ok {
			return path.Join(dir, strings.TrimPrefix(strings.TrimPrefix(name, at), "/")), true
		}
		i := strings.LastIndexByte(at, '/')
		if i < 0 {
			return "", false
		}
		at = at[:i]
	}
}

// maxNodes is how many packages a diagram can have and still be read.
const maxNodes = 60

// graph draws who imports whom. Too many packages are drawn by their folders.
func graph(m *markdown, packages []*goPackage) {
	node := func(p string) string { return p }
	for level := 4; level >= 1; level-- {
		seen := map[string]bool{}
		for _, p := range packages {
			seen[node(p.Path)] = true
		}
		if len(seen) <= maxNodes {
			break
		}
		node = func(p string) string {
			parts := strings.SplitN(p, "/", level+1)
			return strings.Join(parts[:min(len(parts), level)], "/")
		}
	}
	ids, edges := map[string]string{}, map[[2]string]int{}
	for _, p := range packages {
		if p.Files == 0 {
			continue
		}
		from := node(p.Path)
		ids[from] = ""
		for _, to := range p.Imports {
			if to = node(to); to != from {
				ids[to] = ""
				edges[[2]string{from, to}]++
			}
		}
	}
	m.line("```mermaid")
	m.line("graph LR")
	for i, name := range slices.Sorted(maps.Keys(ids)) {
		ids[name] = fmt.Sprintf("p%d", i)
		m.line("  %s[\"%s\"]", ids[name], label(name))
	}
	for _, e := range slices.SortedFunc(maps.Keys(edges), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		m.line("  %s --> %s", ids[e[0]], ids[e[1]])
	}
	m.line("```")
	if len(ids) < len(packages) {
		m.line("")
		m.line("%d packages; packages without anything but tests are left out, and more than %d nodes are drawn by their folders.", len(packages), maxNodes)
	}
}

// label is a name between quotes in Mermaid, where # begins an entity.
func label(name string) string {
	name = strings.NewReplacer("#", "#35;", `"`, "#quot;", "`", "#96;", "<", "#lt;", ">", "#gt;").Replace(plain(name))
	if name == "." {
		return "(root)"
	}
	return name
}
