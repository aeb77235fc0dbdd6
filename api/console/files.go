package console

// The files of the page, as serve answers them below /ui/. load, called at the first request, reads what is embedded (embed.go), compresses it, and makes a page for each address of app/pages.js (fill), which names the modules
// that are needed there; at picks it.

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
)

// Policy lets the page use what is of its own origin, and nothing else.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; worker-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// assets is where the files are; behind it comes the hash of all of them.
const assets = "/ui/assets/"

// site are the files of the page, by their paths below the address of the assets.
type site struct {
	hash   string // of all files
	files  map[string]file
	page   file // for an address that no route has
	routes []route
}

// file is one file, as it is and compressed.
type file struct {
	contentType  string
	plain, small []byte
	tag          string // the value of its ETag
}

var contentTypes = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".html": "text/html; charset=utf-8"}

// sheets are the styles, in this order: browsers ask for one file, which is before anything is drawn.
var sheets = []string{"app/base.css", "app/parts.css", "app/pages.css"}

// sheet is what they are together.
const sheet = "app/console.css"

// comment is one before a declaration of a module. No browser needs it: an empty line is in the place of each of its lines, so that errors name those that the source has.
var comment = regexp.MustCompile(`(?ms)^(?://[^\n]*\n|/\*\*.*?\*/\n)`)

// load reads and compresses all files. Files whose kind no browser asks for, as those of documentation, are left out.
func load(from fs.FS, o Options) (*site, error) {
	s := &site{files: map[string]file{}}
	sum := sha256.New()
	var page []byte
	err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		typ := contentTypes[path.Ext(name)]
		if err != nil || d.IsDir() || typ == "" {
			return err
		}
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, "vendor/") {
			text = comment.ReplaceAllFunc(text, func(c []byte) []byte { return bytes.Repeat([]byte{'\n'}, bytes.Count(c, []byte{'\n'})) })
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(text))
		sum.Write(text)
		if name == "index.html" {
			page = text
			return nil
		}
		s.files[name], err = newFile(typ, text)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("console: cannot read the page: %w", err)
	}
	if page == nil {
		return nil, errors.New("console: there is no index.html")
	}
	var all []byte
	for _, name := range sheets {
		all = append(all, s.files[name].plain...)
	}
	if s.files[sheet], err = newFile(contentTypes[".css"], all); err != nil {
		return nil, err
	}
	s.hash = hex.EncodeToString(sum.Sum(nil)[:8])
	if s.page, err = s.fill(page, o); err != nil {
		return nil, err
	}
	for _, r := range routed.FindAllStringSubmatch(string(s.files["app/pages.js"].plain), -1) {
		one := route{pattern: strings.Split(strings.Trim(r[1], "/"), "/")}
		if one.page, err = s.fill(page, o, "pages/"+r[2]); err != nil {
			return nil, err
		}
		s.routes = append(s.routes, one)
	}
	return s, nil
}

// fill puts into the page where its files are, and has the browser ask all at once for the modules that are needed to draw it, which it would find one after the other.
func (s *site) fill(page []byte, o Options, modules ...string) (file, error) {
	var links []string
	for _, name := range s.needed(append([]string{"app/main.js"}, modules...)) {
		links = append(links, `<link rel="modulepreload" href="`+assets+s.hash+"/"+name+`">`)
	}
	return newFile(contentTypes[".html"], []byte(strings.NewReplacer("{{assets}}", assets+s.hash, "{{modules}}", strings.Join(links, "\n"), "{{version}}", html.EscapeString(o.Version), "{{program}}", html.EscapeString(cmp.Or(o.Program, "instar"))).Replace(string(page))))
}

// How modules name others, and app/pages.js the module of each page.
var (
	imported = regexp.MustCompile(`(?m)^(?:import|export) .*from '(\.[^']+)';$`)
	routed   = regexp.MustCompile(`\['(/ui[^']*)', \(\) => import\('\.\./pages/([^']+)'\)\]`)
)

// needed are modules and what they import, and so on.
func (s *site) needed(modules []string) []string {
	for i := 0; i < len(modules); i++ {
		for _, found := range imported.FindAllStringSubmatch(string(s.files[modules[i]].plain), -1) {
			if name := path.Join(path.Dir(modules[i]), found[1]); !slices.Contains(modules, name) {
				modules = append(modules, name)
			}
		}
	}
	return modules
}

// route is the page at some addresses; parts of the pattern in braces stand for any text.
type route struct {
	pattern []string
	page    file
}

// at is the page for an address below /ui/.
func (s *site) at(address string) file {
	have := strings.Split(strings.Trim("ui/"+address, "/"), "/")
	for _, r := range s.routes {
		if slices.EqualFunc(r.pattern, have, func(want, part string) bool { return want == part || strings.HasPrefix(want, "{") }) {
			return r.page
		}
	}
	return s.page
}

func newFile(contentType string, text []byte) (file, error) {
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		return file{}, err
	}
	if _, err = z.Write(text); err == nil {
		err = z.Close()
	}
	sum := sha256.Sum256(text)
	return file{contentType, text, small.Bytes(), hex.EncodeToString(sum[:8])}, err
}

// serve answers what is asked for below /ui/.
func (c *Console) serve(q *rest.Request) error {
	s, err := c.site()
	if err != nil {
		return err
	}
	asked := q.PathValue("path")
	h := q.W.Header()
	h.Set("Content-Security-Policy", Policy)
	name, isAsset := strings.CutPrefix(asked, "assets/")
	if !isAsset {
		return answer(q, s.at(asked))
	}
	hash, name, _ := strings.Cut(name, "/")
	f, known := s.files[name]
	if !known || hash != s.hash { // of another version of the program: the page is to be loaded again
		return problem.New(machines.CodeNotFound, "this version of the console has no such file")
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	return answer(q, f)
}

func answer(q *rest.Request, f file) error {
	h := q.W.Header()
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", `"`+f.tag+`"`)
	if rest.Unchanged(q.R, f.tag) {
		q.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	if strings.Contains(q.R.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		return q.Text(f.contentType, f.small)
	}
	return q.Text(f.contentType, f.plain)
}
