package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/internal/ownfile"
)

// Place is a server with what it takes to ask it. The token goes to that server only.
type Place struct {
	Server    string `json:"server"`
	Token     string `json:"token,omitempty"`
	CA        string `json:"ca,omitempty"` // file
	Namespace string `json:"namespace,omitempty"`
}

// Contexts are the places that have names, and which of them is meant where none is named. They lie in one file that only
// its owner may read.
type Contexts struct {
	Current  string           `json:"current,omitempty"`
	Contexts map[string]Place `json:"contexts"`

	file string
}

// LoadContexts reads the contexts; a file that is not there has none.
func LoadContexts() (*Contexts, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the directory of the contexts: %w", err)
	}
	c := &Contexts{file: filepath.Join(dir, "instar", "contexts.json"), Contexts: map[string]Place{}}
	raw, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, c)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the contexts in %s: %w", c.file, err)
	}
	return c, nil
}

// Save replaces the file as a whole.
func (c *Contexts) Save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := ownfile.Replace(c.file, append(raw, '\n')); err != nil {
		return fmt.Errorf("cannot keep the contexts: %w", err)
	}
	return nil
}

// Names are those of all of them, sorted.
func (c *Contexts) Names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

// Named is the place of that name; an error says which there are.
func (c *Contexts) Named(name string) (Place, error) {
	p, ok := c.Contexts[name]
	if !ok {
		list := strings.Join(c.Names(), ", ")
		if list == "" {
			list = "none"
		}
		return p, Try(Usagef("there is no context %q; there are: %s", name, list), "instar ctx add %s --server URL", name)
	}
	return p, nil
}

// ContextName is what the name of a context looks like.
var ContextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// given are the words of the command line and of the environment that choose a server.
type given struct{ context, server, token, ca, namespace func() (flag, env string) }

// chosen is the place that is meant: a flag wins over --context, that over the environment, and that over the selected
// context. Who names a server gets nothing of a context, least of all its token.
func (g given) chosen() (p Place, err error) {
	pick := func(words func() (string, string), of string) string {
		flag, env := words()
		for _, v := range []string{flag, of, env} {
			if v != "" {
				return v
			}
		}
		return ""
	}
	name, selected := g.context()
	serverFlag, serverEnv := g.server()
	switch {
	case name != "" && serverFlag != "":
		return p, Usagef("--context names a server already: leave one of --context and --server")
	case name == "" && serverFlag == "" && serverEnv == "":
		name = selected
		if name == "" {
			all, err := LoadContexts()
			if err != nil {
				return p, err
			}
			name = all.Current
		}
	}
	var from Place
	if name != "" {
		all, err := LoadContexts()
		if err != nil {
			return p, err
		}
		if from, err = all.Named(name); err != nil {
			return p, err
		}
	}
	return Place{Server: pick(g.server, from.Server), Token: pick(g.token, from.Token), CA: pick(g.ca, from.CA), Namespace: pick(g.namespace, from.Namespace)}, nil
}

// CompleteContexts offers the names that there are.
func CompleteContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, err := LoadContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return c.Names(), cobra.ShellCompDirectiveNoFileComp
}
