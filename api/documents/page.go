package documents

import (
	"fmt"
	"html"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/diagram"
)

// page fills in docs.html. It is no html/template: that calls methods by their names, with which the linker keeps every exported method of everything, a fifth of the binary.
func (s *Set) page(text string) string {
	var codes, problems, tables strings.Builder
	for _, k := range problem.Kinds {
		write(&codes, "\n<li><a href=\"#problem-%s\">%s</a></li>", k.Code, k.Code)
		write(&problems, "\n<article id=\"problem-%s\" class=\"problem\">\n<h3>%s <small>%s</small></h3>\n", k.Code, k.Code, strconv.Itoa(k.Status))
		write(&problems, "<p><b>%s.</b> %s</p>\n<p class=\"do\">%s</p>\n</article>\n", k.Title, k.Doc, k.Do)
	}
	for _, m := range s.machines.All() {
		write(&tables, "\n<article id=\"machine-%s\">\n<h3>%s</h3>\n<p>%s</p>\n<div class=\"diagram\" data-machine=\"%s\"></div>\n", m.Name, m.Name, m.Doc, m.Name)
		write(&tables, "<details><summary>As Mermaid text</summary><pre tabindex=\"0\">%s</pre></details>\n<table>\n", diagram.Mermaid(m))
		write(&tables, "<thead><tr><th scope=\"col\">State</th><th scope=\"col\">What it means</th><th scope=\"col\">Kind</th></tr></thead>\n<tbody>")
		for _, state := range m.States {
			write(&tables, "\n<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td></tr>", state.Name, state.Doc, kind(&state))
		}
		write(&tables, "\n</tbody>\n</table>\n</article>\n")
	}
	version := html.EscapeString(s.router.API.OpenAPI().Info.Version)
	return strings.NewReplacer("{{version}}", version, "{{codes}}", codes.String(), "{{machines}}", tables.String(), "{{problems}}", problems.String()).Replace(text)
}

// write puts texts into a piece of HTML, escaped.
func write(b *strings.Builder, format string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, t := range texts {
		escaped[i] = html.EscapeString(t)
	}
	fmt.Fprintf(b, format, escaped...)
}

func kind(s *machines.StateInfo) string {
	var b strings.Builder
	for _, is := range []struct {
		so   bool
		text string
	}{{s.Terminal, "ended "}, {s.Transitional, "on its way "}, {s.Failed, "needs somebody "}} {
		if is.so {
			b.WriteString(is.text)
		}
	}
	return b.String()
}
