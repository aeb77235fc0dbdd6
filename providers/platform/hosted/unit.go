package hosted

import (
	"maps"
	"strconv"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Unit is a release as an engine runs it.
type Unit struct {
	Name         string // unlike that of any other one of the installation
	Installation string `json:"installation,omitempty"` // whose it is; empty for one of a server that had no id
	Program      app.Program
	Env          map[string]string
	Host         string // IP address that it is reached at
	Port         int
	Home         string // absolute paths
	Tenant       string
	Limits       app.Limits `json:"limits,omitzero"`
}

// State is what a unit stands at.
type State struct {
	Running bool
	Stopped bool   // it has ended or never begun, and does not start by itself
	Ends    int    // how often it has ended by itself
	Message string // how it ended last, and its last line
}

// idLetters is how much of the installation's id is in the names of its units.
const idLetters = 8

// unit is that of a release, as far as it says whose it is.
func (a *Apps) unit(key string) Unit {
	return Unit{Name: "instar-" + a.config.Installation[:idLetters] + "-" + key, Installation: a.config.Installation}
}

// anothers is what an engine says of what it has under the name of a unit that it is not.
func (u *Unit) anothers(kind string) error {
	return providers.Errorf(providers.Invalid, "%s has %s, and that is not of this installation: see whose it is, and remove it there", kind, u.Name)
}

// full is the unit with what every one is told.
func (u *Unit) full() *Unit {
	all := *u
	all.Env = maps.Clone(u.Program.Env)
	if all.Env == nil {
		all.Env = map[string]string{}
	}
	maps.Copy(all.Env, u.Env)
	all.Env["PORT"], all.Env["HOME"] = strconv.Itoa(u.Port), u.Home
	return &all
}
