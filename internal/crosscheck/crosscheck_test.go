//go:build !race

package crosscheck

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

const module = "github.com/bcc94042/instar"

// The program compiles for macOS, and the libraries for Windows, too. Only types are checked, of other modules those that they declare: it takes seconds,
// where `make cross`, which builds all, takes minutes the first time. Under the race detector it would take minutes as well.
func TestCompilesElsewhere(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	made, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	libraries := regexp.MustCompile(`(?m)^LIBRARIES := (.+)$`).FindStringSubmatch(string(made))
	require.NotEmpty(t, libraries)
	for at, patterns := range map[string][]string{"darwin/arm64": {"./cmd/instar"}, "windows/amd64": strings.Fields(libraries[1])} {
		t.Run(strings.ReplaceAll(at, "/", "-"), func(t *testing.T) {
			t.Parallel()
			goos, goarch, _ := strings.Cut(at, "/")
			list, err := packages.Load(&packages.Config{
				Context: t.Context(), Dir: root, Env: append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
				Mode: packages.LoadAllSyntax,
				ParseFile: func(set *token.FileSet, name string, text []byte) (*ast.File, error) {
					f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
					if f != nil && !strings.HasPrefix(name, root+string(filepath.Separator)) {
						for _, d := range f.Decls {
							if fn, ok := d.(*ast.FuncDecl); ok {
								fn.Body = nil
							}
						}
					}
					return f, err
				},
			}, patterns...)
			require.NoError(t, err)
			require.NotEmpty(t, list)
			var wrong []string
			packages.Visit(list, nil, func(p *packages.Package) {
				for _, err := range p.Errors {
					if strings.HasPrefix(p.PkgPath, module) { // others lack their bodies
						wrong = append(wrong, err.Error())
					}
				}
			})
			require.Empty(t, wrong)
		})
	}
}
