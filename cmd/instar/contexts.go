package main

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
)

// place is a server with what it takes to ask it. The token goes to that server only.
type place struct {
	Server    string `json:"server"`
	Token     string `json:"token,omitempty"`
	CA        string `json:"ca,omitempty"` // file
	Namespace string `json:"namespace,omitempty"`
}

// contexts are the places that have names, and which of them is meant where none is named. They lie in one file that only
// its owner may read.
type contexts struct {
	Current  string           `json:"current,omitempty"`
	Contexts map[string]place `json:"contexts"`

	file string
}

// loadContexts reads the contexts; a file that is not there has none.
func loadContexts() (*contexts, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return nil, fmt.Errorf("cannot find the directory of the contexts: %w", err)
	}
	c := &contexts{file: filepath.Join(dir, "instar", "contexts.json"), Contexts: map[string]place{}}
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

// save replaces the file as a whole.
func (c *contexts) save() error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(c.file, append(raw, '\n')); err != nil {
		return fmt.Errorf("cannot keep the contexts: %w", err)
	}
	return nil
}

// replaceFile writes a file for its owner only, with its directory. Nobody sees a part of it.
func replaceFile(path string, raw []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil { // else a crash leaves the new name without content
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (c *contexts) names() []string { return slices.Sorted(maps.Keys(c.Contexts)) }

func (c *contexts) named(name string) (place, error) {
	p, ok := c.Contexts[name]
	if !ok {
		list := strings.Join(c.names(), ", ")
		if list == "" {
			list = "none"
		}
		return p, try(usagef("there is no context %q; there are: %s", name, list), "instar ctx add %s --server URL", name)
	}
	return p, nil
}

var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// given are the words of the command line and of the environment that choose a server.
type given struct{ context, server, token, ca, namespace func() (flag, env string) }

// chosen is the place that is meant: a flag wins over --context, that over the environment, and that over the selected
// context. Who names a server gets nothing of a context, least of all its token.
func (g given) chosen() (p place, err error) {
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
		return p, usagef("--context names a server already: leave one of --context and --server")
	case name == "" && serverFlag == "" && serverEnv == "":
		name = selected
		if name == "" {
			all, err := loadContexts()
			if err != nil {
				return p, err
			}
			name = all.Current
		}
	}
	var from place
	if name != "" {
		all, err := loadContexts()
		if err != nil {
			return p, err
		}
		if from, err = all.named(name); err != nil {
			return p, err
		}
	}
	return place{Server: pick(g.server, from.Server), Token: pick(g.token, from.Token), CA: pick(g.ca, from.CA), Namespace: pick(g.namespace, from.Namespace)}, nil
}
