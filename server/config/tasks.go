package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Tasks are what the tasks of this node may do, and how much.
type Tasks struct {
	Programs    map[string]Program `koanf:"programs"` // that tasks of type exec may run, by the name that they use
	Local       []string           `koanf:"local"`    // directories below which repositories of this machine may be cloned
	Credentials []Credential       `koanf:"credentials"`
	Clone       TasksClone         `koanf:"clone"`
	Exec        TasksExec          `koanf:"exec"`
}

// Program is one that may be run.
type Program struct {
	Path      string            `koanf:"path"`
	Args      []string          `koanf:"args"`
	Arguments bool              `koanf:"arguments"` // a task may add some
	Env       map[string]string `koanf:"env"`
}

// Credential is what a host of repositories wants to see. The secret is in a file, read at each use, so that it can be replaced.
type Credential struct {
	Host         string `koanf:"host"` // or host:port
	Username     string `koanf:"username"`
	PasswordFile string `koanf:"passwordFile"`
}

// TasksClone bounds checkouts.
type TasksClone struct {
	Max     string        `koanf:"max"` // size of one with its history
	Timeout time.Duration `koanf:"timeout"`
	Depth   int           `koanf:"depth"` // commits; -1 is all
}

// TasksExec bounds each process of a program. Empty and 0 is no bound.
type TasksExec struct {
	CPU    time.Duration `koanf:"cpu"`
	Memory string        `koanf:"memory"`
	File   string        `koanf:"file"`
	Output string        `koanf:"output"` // that goes into the log
}

func defaultTasks(mode string) Tasks {
	t := Tasks{Clone: TasksClone{Max: "2GiB", Timeout: 10 * time.Minute, Depth: 200}, Exec: TasksExec{File: "1GiB", Output: "1MiB"}}
	if mode == Dev {
		t.Local = []string{"/"}
	}
	return t
}

// Bytes of the bounds; 0 is none.
func (c TasksClone) Bytes() int64 { return size(c.Max) }

// Sizes are the bytes of its bounds; 0 is none.
func (e TasksExec) Sizes() (memory, file, output int64) {
	return size(e.Memory), size(e.File), size(e.Output)
}

func (t Tasks) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for name, p := range t.Programs {
		at := "tasks.programs." + name
		check(machines.IsLabel(name), "tasks.programs: %q is no name of lower-case letters, digits and inner hyphens", name)
		info, err := os.Stat(p.Path)
		check(filepath.IsAbs(p.Path), "%s.path: %q is not absolute", at, p.Path)
		check(err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0, "%s.path: %q is no program that can be run", at, p.Path)
	}
	for _, dir := range t.Local {
		info, err := os.Stat(dir)
		check(filepath.IsAbs(dir) && err == nil && info.IsDir(), "tasks.local: %q is no absolute path of a directory", dir)
	}
	var hosts []string
	for i, c := range t.Credentials {
		at := fmt.Sprintf("tasks.credentials[%d]", i)
		check(c.Host != "" && !strings.ContainsAny(c.Host, "/@ "), "%s.host: %q is not a host, or host:port", at, c.Host)
		check(!slices.Contains(hosts, c.Host), "%s.host: %q is named twice", at, c.Host)
		hosts = append(hosts, c.Host)
		check(c.PasswordFile != "", "%s.passwordFile: is needed", at)
		errs = append(errs, readable(at+".passwordFile", c.PasswordFile))
	}
	for key, text := range map[string]string{"clone.max": t.Clone.Max, "exec.memory": t.Exec.Memory, "exec.file": t.Exec.File, "exec.output": t.Exec.Output} {
		check(text == "" || size(text) > 0, "tasks.%s: %q is no size, such as 2GiB", key, text)
	}
	check(t.Clone.Timeout > 0 && t.Clone.Timeout <= 24*time.Hour, "tasks.clone.timeout: %s is not from 1ns to 24h", t.Clone.Timeout)
	check(t.Clone.Depth >= -1 && t.Clone.Depth != 0, "tasks.clone.depth: %d is neither a number of commits nor -1", t.Clone.Depth)
	check(t.Exec.CPU >= 0 && t.Exec.CPU%time.Second == 0, "tasks.exec.cpu: %s is no number of whole seconds", t.Exec.CPU)
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// redacted hides the environment of programs.
func (t Tasks) redacted() Tasks {
	programs := make(map[string]Program, len(t.Programs))
	for name, p := range t.Programs {
		env := make(map[string]string, len(p.Env))
		for k := range p.Env {
			env[k] = hidden
		}
		p.Env = env
		programs[name] = p
	}
	t.Programs = programs
	return t
}
