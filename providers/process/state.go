//go:build linux

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers/process/child"
)

// stateSchema is the version of the stored form of [state].
const stateSchema = 1

// state is what is known of one service, in its state file.
type state struct {
	Schema    int    `json:"schema"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Fence     uint64 `json:"fence"` // the highest seen, over all lives

	Gone     bool   `json:"gone,omitempty"` // a tombstone: what follows is of a life that has ended
	Deleting bool   `json:"deleting,omitempty"`
	Force    bool   `json:"force,omitempty"`
	Life     string `json:"life"` // of the service, from the request
	UID      string `json:"uid"`  // of the object
	Writes   uint64 `json:"writes"`

	Generation int64        `json:"generation"`
	Observed   int64        `json:"observed"`
	Wanted     uint64       `json:"wanted"` // generation of the entity
	Hash       string       `json:"hash"`
	Spec       service.Spec `json:"spec"`
	Port       int          `json:"port"`

	Created   int         `json:"created"`             // revisions so far
	Serving   string      `json:"serving,omitempty"`   // revision
	Revisions []*revision `json:"revisions,omitempty"` // oldest first
	Forwarder *copied     `json:"forwarder,omitempty"`
}

// The phases of a revision.
const (
	starting = "starting" // not healthy yet
	serving  = "serving"
	failed   = "failed" // never became healthy; nothing of it runs
	retired  = "retired"
)

// revision is one specification as it runs.
type revision struct {
	Name       string       `json:"name"`
	Generation int64        `json:"generation"`
	Hash       string       `json:"hash"`
	Spec       service.Spec `json:"spec"`
	Socket     string       `json:"socket,omitempty"` // of its template when it began, whatever that has by now; an earlier program did not write it
	Phase      string       `json:"phase"`
	Began      time.Time    `json:"began"`
	Reason     string       `json:"reason,omitempty"`
	Message    string       `json:"message,omitempty"`
	Copies     []*copied    `json:"copies,omitempty"`
}

// copied is one of the processes of a revision, with those that took its place after a crash.
type copied struct {
	Process *child.Process `json:"process,omitempty"` // nil while none runs
	Address string         `json:"address,omitempty"` // where it is probed, and where a forwarder finds it
	Secret  string         `json:"secret,omitempty"`  // of a forwarder's process: who steers it shows it. One of an earlier program has none, and is shown the mark that all processes have

	health
}

// revision of that name, or nil.
func (s *state) revision(name string) *revision {
	for _, r := range s.Revisions {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// latest is the revision that was made last, or nil.
func (s *state) latest() *revision {
	if len(s.Revisions) == 0 {
		return nil
	}
	return s.Revisions[len(s.Revisions)-1]
}

// all are the copies of everything.
func (s *state) all() []*copied {
	var all []*copied
	for _, r := range s.Revisions {
		all = append(all, r.Copies...)
	}
	if s.Forwarder != nil {
		all = append(all, s.Forwarder)
	}
	return all
}

// load reads all state files below dir.
func load(dir string) ([]*state, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.*", "state.json"))
	if err != nil {
		return nil, err
	}
	var all []*state
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s := new(state)
		if err := json.Unmarshal(raw, s); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
		if s.Schema > stateSchema {
			return nil, fmt.Errorf("%s was written by a newer program", path)
		}
		all = append(all, s)
	}
	return all, nil
}
