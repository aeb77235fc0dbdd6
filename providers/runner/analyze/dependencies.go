package analyze

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"
)

// dependency is one component that a file names.
type dependency struct {
	Kind    string `json:"kind"` // type of its package URL
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty where the file has none that is exact
	File    string `json:"file"`
	Direct  bool   `json:"direct"`        // the repository asks for it itself, as far as the file tells
	Dev     bool   `json:"dev,omitempty"` // only to build and test
}

// purl is the package URL, which is what identifies it in other tools.
func (d *dependency) purl() string {
	name, namespace := d.Name, ""
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		namespace, name = name[:i], name[i+1:]
	}
	return packageurl.NewPackageURL(d.Kind, namespace, name, d.Version, nil, "").ToString()
}

// manifests are the files that are read, by base name. requirements files are found by their pattern besides.
var manifests = map[string]func(content []byte) ([]dependency, error){
	"go.mod": goModules, "package-lock.json": packageLock, "npm-shrinkwrap.json": packageLock, "yarn.lock": yarnLock,
	"Cargo.lock": tomlLock("cargo"), "poetry.lock": tomlLock("pypi"), "uv.lock": tomlLock("pypi"),
	"Gemfile.lock": gemfileLock, "composer.lock": composerLock,
}

func manifest(f File) func([]byte) ([]dependency, error) {
	base := path.Base(f.Path)
	if read, ok := manifests[base]; ok {
		return read
	}
	if strings.HasPrefix(base, "requirements") && strings.HasSuffix(base, ".txt") {
		return requirements
	}
	return nil
}

// dependencies reads lock files; nothing is asked from a registry.
func dependencies(ctx context.Context, in *Input) (*report, error) {
	var found []dependency
	var unreadable []string
	var files []string
	most := in.Tree.limits.Manifest
	want := func(f File) bool {
		if manifest(f) == nil || vendored(f.Path) {
			return false
		}
		if f.Size > most {
			unreadable = append(unreadable, fmt.Sprintf("%s: it has more than %s", code(f.Path), size(most)))
		}
		return f.Size <= most
	}
	err := in.Tree.eachUpTo(ctx, most, want, func(f File, content []byte) {
		list, err := manifest(f)(content)
		if err != nil {
			unreadable = append(unreadable, fmt.Sprintf("%s: %s", code(f.Path), plain(err.Error())))
			return
		}
		if most := in.Tree.limits.Dependencies; int64(len(found)+len(list)) > most {
			unreadable = append(unreadable, fmt.Sprintf("%s: with its %d there would be more than %d dependencies", code(f.Path), len(list), most))
			return
		}
		files = append(files, f.Path)
		for _, d := range list {
			d.File = f.Path
			found = append(found, d)
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b dependency) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), cmp.Compare(a.File, b.File))
	})
	incomplete := ""
	switch {
	case len(unreadable) > 0:
		incomplete = fmt.Sprintf(" Incomplete: %s that %s dependencies could not be read.", count(len(unreadable), "file", "files"), map[bool]string{true: "names", false: "name"}[len(unreadable) == 1])
	case len(in.Tree.LeftOut()) > 0:
		incomplete = " Incomplete: not all of the repository was read."
	}
	bom, err := billOfMaterials(in, found, incomplete != "")
	if err != nil {
		return nil, err
	}
	r := &report{
		title: "Dependencies", summary: fmt.Sprintf("%s in %s.", count(len(found), "dependency", "dependencies"), count(len(files), "file", "files")),
		data: map[string]any{"files": files, "unreadable": unreadable, "dependencies": found},
		more: []Document{{Name: "dependencies.cdx.json", Type: "application/vnd.cyclonedx+json", Body: bom}},
	}
	if len(files) == 0 && incomplete == "" {
		r.summary = "No file that names dependencies was found."
	}
	r.summary += incomplete
	var rows [][]string
	for _, d := range found {
		how := "indirect"
		if d.Direct {
			how = "direct"
		}
		if d.Dev {
			how += ", dev"
		}
		rows = append(rows, []string{d.Kind, code(d.Name), code(cmp.Or(d.Version, "any")), how, code(d.File)})
	}
	r.text.line("The same as CycloneDX: `dependencies.cdx.json`.")
	r.text.line("")
	r.text.table([]string{"kind", "name", "version", "use", "file"}, rows)
	for _, u := range unreadable {
		r.text.line("")
		r.text.line("Not readable: %s", u)
	}
	return r, nil
}

// vendored are copies of what others depend on.
func vendored(name string) bool {
	for part := range strings.SplitSeq(path.Dir(name), "/") {
		if part == "node_modules" || part == "vendor" || part == "testdata" {
			return true
		}
	}
	return false
}

// billOfMaterials is CycloneDX 1.6. Its serial number is derived from the repository and the commit, so that the same tree gives the same document.
// One that lacks what could not be read says that it is incomplete.
func billOfMaterials(in *Input, found []dependency, incomplete bool) ([]byte, error) {
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte("instar/"+in.Name+"@"+in.Commit)).String()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{BOMRef: "root", Type: cyclonedx.ComponentTypeApplication, Name: in.Name, Version: in.Commit}}
	components, direct := []cyclonedx.Component{}, []string{}
	seen, asked := map[string]int{}, map[string]bool{}
	for _, d := range found {
		ref := d.purl()
		if d.Direct && !asked[ref] {
			asked[ref], direct = true, append(direct, ref)
		}
		at := cyclonedx.EvidenceOccurrence{Location: d.File}
		if i, ok := seen[ref]; ok {
			occurrences := components[i].Evidence.Occurrences
			*occurrences = append(*occurrences, at)
			if !d.Dev {
				components[i].Scope = cyclonedx.ScopeRequired
			}
			continue
		}
		seen[ref] = len(components)
		scope := cyclonedx.ScopeRequired
		if d.Dev {
			scope = cyclonedx.ScopeExcluded
		}
		components = append(components, cyclonedx.Component{
			BOMRef: ref, Type: cyclonedx.ComponentTypeLibrary, Name: d.Name, Version: d.Version, PackageURL: ref, Scope: scope,
			Evidence: &cyclonedx.Evidence{Occurrences: &[]cyclonedx.EvidenceOccurrence{at}},
		})
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: "root", Dependencies: &direct}}
	if root := (&[]cyclonedx.BOMReference{"root"}); incomplete {
		bom.Compositions = &[]cyclonedx.Composition{{Aggregate: cyclonedx.CompositionAggregateIncomplete, Assemblies: root, Dependencies: root}}
	}
	var out bytes.Buffer
	enc := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	enc.SetPretty(true)
	if err := enc.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("cannot write the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}
