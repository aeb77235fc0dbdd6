package all

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// Forms of commands that replace begin with what is there under the same names (machines.Command.Replaces). So each member of such a body is kept under its name, and one of another body that the data has, too, is said here: it is
// for once, and who sends it again means something else.
func TestCommandsReplaceWhatTheyAreToldToReplace(t *testing.T) {
	t.Parallel()
	once := map[string]string{
		"instance graceful-shutdown drain":         "a deadline; the data has the drain",
		"instance pin weight":                      "the data has the one that was registered",
		"task run batch":                           "of this run",
		"task run stopBatch":                       "of this run",
		"task run notBefore":                       "of this run",
		"database_provisioning rollback skip":      "what was done by hand before this one",
		"instance_provisioning rollback skip":      "what was done by hand before this one",
		"instance_provisioning upgrade version":    "the data has the one that runs",
		"instance_provisioning deprovision export": "asked for with each",
		"service update supersede":                 "of this update; no data has it",
		"domain retarget detach":                   "of this retarget; the labels tell whose it is",
	}
	for _, m := range Machines() {
		data := members(reflect.TypeOf(m.New("default", "", "a").Data))
		data["labels"] = reflect.Map
		for _, c := range m.Commands() {
			if c.Body == nil || c.Birth && !c.Replaces && !takenLive(m, c.Name) {
				continue
			}
			for name, kind := range members(reflect.TypeOf(c.Body)) {
				key := m.Name + " " + strings.Replace(c.Name, "retry", "run", 1) + " " + name
				switch has, there := data[name]; {
				case once[key] != "":
				case c.Replaces:
					require.True(t, there, key)
					require.Equal(t, has, kind, key)
				default:
					require.False(t, there, "%s: does it replace what is there?", key)
				}
			}
		}
	}
}

// takenLive reports whether a command that begins a life is taken in one, too.
func takenLive(m *machines.Machine, name string) bool {
	for _, s := range m.States {
		for _, e := range m.Edges {
			if e.On == name && e.From == s.Name && !s.Terminal {
				return true
			}
		}
	}
	return false
}

// members are the JSON members of a struct, with what their values are.
func members(of reflect.Type) map[string]reflect.Kind {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	all := map[string]reflect.Kind{}
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		for f.Type.Kind() == reflect.Pointer {
			f.Type = f.Type.Elem()
		}
		all[name] = f.Type.Kind()
	}
	return all
}
