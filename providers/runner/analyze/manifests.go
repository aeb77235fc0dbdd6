package analyze

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// goModules are the requirements of a go.mod, with its replacements by other modules.
func goModules(content []byte) ([]dependency, error) {
	f, err := modfile.ParseLax("go.mod", content, nil)
	if err != nil {
		return nil, err
	}
	full, err := modfile.Parse("go.mod", content, nil) // with replacements, which a newer syntax must not cost us
	if err == nil {
		f = full
	}
	replaced := map[module.Version]module.Version{}
	for _, p := range f.Replace {
		replaced[p.Old] = p.New
	}
	var list []dependency
	for _, r := range f.Require {
		d := dependency{Kind: "golang", Name: r.Mod.Path, Version: r.Mod.Version, Direct: !r.Indirect}
		for _, old := range []module.Version{{Path: r.Mod.Path}, r.Mod} { // that of the version counts
			if by, ok := replaced[old]; ok {
				d.Name, d.Version = by.Path, by.Version
			}
		}
		if !modfile.IsDirectoryPath(d.Name) { // a folder of the same repository
			list = append(list, d)
		}
	}
	return list, nil
}

type npmEntry struct {
	Version      string              `json:"version"`
	Link         bool                `json:"link"`
	Dev          bool                `json:"dev"`
	Name         string              `json:"name"`
	Dependencies json.RawMessage     `json:"dependencies"` // of version 1 nested entries, of later ones ranges
	Direct       map[string]struct{} `json:"-"`
}

// packageLock reads all three versions of npm's lock file.
func packageLock(content []byte) ([]dependency, error) {
	var lock struct {
		Packages     map[string]json.RawMessage `json:"packages"`
		Dependencies map[string]npmEntry        `json:"dependencies"`
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		return nil, err
	}
	if lock.Packages == nil {
		return npmTree(lock.Dependencies, true, 0)
	}
	var own struct {
		Dependencies map[string]string `json:"dependencies"`
		Dev          map[string]string `json:"devDependencies"`
		Optional     map[string]string `json:"optionalDependencies"`
	}
	if root, ok := lock.Packages[""]; ok {
		if err := json.Unmarshal(root, &own); err != nil {
			return nil, err
		}
	}
	var list []dependency
	for _, at := range slices.Sorted(maps.Keys(lock.Packages)) {
		i := strings.LastIndex(at, "node_modules/")
		if i < 0 { // the repository itself, and its workspaces
			continue
		}
		var e npmEntry
		if err := json.Unmarshal(lock.Packages[at], &e); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		if e.Link {
			continue
		}
		name := at[i+len("node_modules/"):]
		_, a := own.Dependencies[name]
		_, b := own.Dev[name]
		_, c := own.Optional[name]
		if e.Name != "" {
			name = e.Name
		}
		list = append(list, dependency{Kind: "npm", Name: name, Version: e.Version, Direct: i == 0 && (a || b || c), Dev: e.Dev})
	}
	return list, nil
}

// npmTree reads the nested entries of version 1, which does not tell what is direct.
func npmTree(entries map[string]npmEntry, top bool, deep int) ([]dependency, error) {
	if deep > 50 {
		return nil, errors.New("its entries are nested too deep")
	}
	var list []dependency
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		list = append(list, dependency{Kind: "npm", Name: name, Version: e.Version, Dev: e.Dev, Direct: top})
		if len(e.Dependencies) > 0 {
			var below map[string]npmEntry
			if err := json.Unmarshal(e.Dependencies, &below); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			more, err := npmTree(below, false, deep+1)
			if err != nil {
				return nil, err
			}
			list = append(list, more...)
		}
	}
	return list, nil
}

var (
	yarnHead    = regexp.MustCompile(`^"?((?:@[^/"]+/)?[^@"]+)@`)
	yarnVersion = regexp.MustCompile(`^\s+version:? "?([^"\s]+)"?`)
)

// yarnLock reads both syntaxes; which entries are direct is in package.json only.
func yarnLock(content []byte) ([]dependency, error) {
	var list []dependency
	name := ""
	for line := range strings.Lines(string(content)) {
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case line[0] != ' ':
			name = ""
			if m := yarnHead.FindStringSubmatch(line); m != nil && !strings.Contains(line, "@workspace:") {
				name = m[1]
			}
		case name != "":
			if m := yarnVersion.FindStringSubmatch(line); m != nil {
				list = append(list, dependency{Kind: "npm", Name: name, Version: m[1]})
				name = ""
			}
		}
	}
	return list, nil
}

// requirement is a line of pip: a name, extras, and possibly the one version that is allowed.
var requirement = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?:(===?)\s*([^\s;,#]+))?`)

func requirements(content []byte) ([]dependency, error) {
	var list []dependency
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "-") || strings.Contains(line, "://") && !strings.Contains(line, " @ ") {
			continue
		}
		if m := requirement.FindStringSubmatch(line); m != nil {
			list = append(list, dependency{Kind: "pypi", Name: pypiName(m[1]), Version: m[3], Direct: true})
		}
	}
	return list, nil
}

var separators = regexp.MustCompile(`[-_.]+`)

// pypiName is the name as package URLs have it.
func pypiName(name string) string {
	return separators.ReplaceAllString(strings.ToLower(name), "-")
}

var tomlPair = regexp.MustCompile(`^(name|version|source)\s*=\s*(.+)$`)

// tomlLock reads the [[package]] tables of Cargo, Poetry and uv: name and version stand each on a line of their own. What has no source in
// Cargo's and uv's own file, or a local one, is of the repository itself.
func tomlLock(kind string) func([]byte) ([]dependency, error) {
	return func(content []byte) ([]dependency, error) {
		var list []dependency
		var d *dependency
		source, sources := "", false
		end := func() {
			local := kind == "cargo" && source == "" || strings.Contains(source, "virtual") || strings.Contains(source, "editable")
			if d != nil && d.Name != "" && !(local && (sources || kind == "cargo")) {
				list = append(list, *d)
			}
			d, source = nil, ""
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				end()
				if line == "[[package]]" {
					d = &dependency{Kind: kind}
				}
				continue
			}
			m := tomlPair.FindStringSubmatch(line)
			if d == nil || m == nil {
				continue
			}
			switch value := strings.Trim(m[2], `"`); m[1] {
			case "name":
				if d.Name = value; kind == "pypi" {
					d.Name = pypiName(value)
				}
			case "version":
				d.Version = value
			case "source":
				source, sources = value, true
			}
		}
		end()
		return list, nil
	}
}

var (
	gemSpec = regexp.MustCompile(`^    ([A-Za-z0-9._-]+) \(([^)]+)\)$`)
	gemOwn  = regexp.MustCompile(`^  ([A-Za-z0-9._-]+)!?(?: \(.*\))?$`)
)

func gemfileLock(content []byte) ([]dependency, error) {
	var list []dependency
	section, own := "", map[string]bool{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line[0] != ' ' {
			section = line
			continue
		}
		if m := gemSpec.FindStringSubmatch(line); m != nil && section == "GEM" {
			list = append(list, dependency{Kind: "gem", Name: m[1], Version: m[2]})
		}
		if m := gemOwn.FindStringSubmatch(line); m != nil && section == "DEPENDENCIES" {
			own[m[1]] = true
		}
	}
	for i := range list {
		list[i].Direct = own[list[i].Name]
	}
	return list, nil
}

func composerLock(content []byte) ([]dependency, error) {
	type entry struct{ Name, Version string }
	var lock struct {
		Packages []entry `json:"packages"`
		Dev      []entry `json:"packages-dev"`
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		return nil, err
	}
	var list []dependency
	for i, entries := range [][]entry{lock.Packages, lock.Dev} {
		for _, e := range entries {
			list = append(list, dependency{Kind: "composer", Name: e.Name, Version: e.Version, Dev: i == 1})
		}
	}
	return list, nil
}
