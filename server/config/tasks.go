package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Tasks are what the tasks of this node may do, and how much.
type Tasks struct {
	Concurrency int                `koanf:"concurrency"` // tasks that this node does at a time; 0 is as many as it has processors, at least 4
	Programs    map[string]Program `koanf:"programs"`    // that tasks of type exec may run, by the name that they use
	Local       []string           `koanf:"local"`       // directories below which repositories of this machine may be cloned
	LocalFor    []string           `koanf:"localFor"`    // namespaces that may do so; none is all
	Credentials []Credential       `koanf:"credentials"`
	Clone       TasksClone         `koanf:"clone"`
	Exec        TasksExec          `koanf:"exec"`
	Documents   TasksDocuments     `koanf:"documents"`
	Keep        time.Duration      `koanf:"keep"` // how long a task stays that has ended; 0 is for ever
}

// Program is one that may be run.
type Program struct {
	Path      string            `koanf:"path"`
	Args      []string          `koanf:"args"`
	Arguments bool              `koanf:"arguments"` // a task may add some
	Env       map[string]string `koanf:"env"`

	Namespaces []string `koanf:"namespaces"` // whose tasks may run it; none is all
}

// Credential is what a host of repositories wants to see. The secret is in a file, read at each use, so that it can be replaced.
type Credential struct {
	Host         string `koanf:"host"` // or host:port
	Username     string `koanf:"username"`
	PasswordFile string `koanf:"passwordFile"`

	Namespaces []string `koanf:"namespaces"` // whose repositories it is for; none is all
}

// TasksClone bounds checkouts, and each process that reads a repository: git, or an analysis.
type TasksClone struct {
	Max     string        `koanf:"max"`   // size of one with its history
	Files   int           `koanf:"files"` // with folders
	Timeout time.Duration `koanf:"timeout"`
	Depth   int           `koanf:"depth"` // commits; -1 is all
	Memory  string        `koanf:"memory"`
	CPU     time.Duration `koanf:"cpu"`
	Total   string        `koanf:"total"` // size of all checkouts of a node
	Keep    time.Duration `koanf:"keep"`  // how long one stays that is neither used nor current
}

// TasksDocuments bounds what tasks have written: the oldest goes first. Empty and 0 is no bound.
type TasksDocuments struct {
	Max           string        `koanf:"max"`           // size of all
	PerRepository int           `koanf:"perRepository"` // documents of a repository
	Keep          time.Duration `koanf:"keep"`
}

// Bytes of the bound; 0 is none.
func (d TasksDocuments) Bytes() int64 { return size(d.Max) }

// TasksExec bounds each process of a program. Empty and 0 is no bound.
type TasksExec struct {
	CPU    time.Duration `koanf:"cpu"`
	Memory string        `koanf:"memory"`
	File   string        `koanf:"file"`
	Disk   string        `koanf:"disk"`   // of all that it has written together
	Output string        `koanf:"output"` // that goes into the log
	User   string        `koanf:"user"`   // whom programs run as; empty is that of the server
}

func defaultTasks(mode string) Tasks {
	t := Tasks{
		Clone: TasksClone{Max: "2GiB", Files: 500_000, Timeout: 10 * time.Minute, Depth: 200, Total: "20GiB", Keep: 24 * time.Hour, Memory: "1GiB", CPU: 10 * time.Minute},
		Exec:  TasksExec{File: "1GiB", Disk: "4GiB", Output: "1MiB"}, Documents: TasksDocuments{Max: "10GiB", PerRepository: 10_000},
	}
	if mode == Dev {
		t.Local = []string{"/"}
	}
	return t
}

// AtOnce is how many tasks this node does at a time. An analysis takes a processor, and may have the memory of [TasksClone]; four is what all nodes may do together unless somebody sets another limit.
func (t Tasks) AtOnce() int { return cmp.Or(t.Concurrency, max(runtime.GOMAXPROCS(0), 4)) }

// Sizes are the bytes of its bounds; 0 is none.
func (c TasksClone) Sizes() (each, total int64) { return size(c.Max), size(c.Total) }

// DiskBytes are those that a program may have written.
func (e TasksExec) DiskBytes() int64 { return size(e.Disk) }

// Account is whom programs run as; ok is false where that is the user of the server.
func (e TasksExec) Account() (uid, gid uint32, ok bool, err error) {
	if e.User == "" {
		return 0, 0, false, nil
	}
	u, err := user.Lookup(e.User)
	if err != nil {
		return 0, 0, false, err
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	group, failed := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), true, errors.Join(err, failed)
}

// leastMemory is what small repositories need.
const leastMemory = 64 << 20

// MemoryBytes are those that a process that reads a repository may have.
func (c TasksClone) MemoryBytes() int64 { return size(c.Memory) }

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
	labels := func(key string, namespaces []string) {
		for _, n := range namespaces {
			check(machines.IsLabel(n), "%s: %q is no name of a namespace", key, n)
		}
	}
	for name, p := range t.Programs {
		at := "tasks.programs." + name
		check(machines.IsLabel(name), "tasks.programs: %q is no name of lower-case letters, digits and inner hyphens", name)
		info, err := os.Stat(p.Path)
		check(filepath.IsAbs(p.Path), "%s.path: %q is not absolute", at, p.Path)
		labels(at+".namespaces", p.Namespaces)
		check(err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0, "%s.path: %q is no program that can be run", at, p.Path)
	}
	labels("tasks.localFor", t.LocalFor)
	for _, dir := range t.Local {
		info, err := os.Stat(dir)
		check(filepath.IsAbs(dir) && err == nil && info.IsDir(), "tasks.local: %q is no absolute path of a directory", dir)
	}
	var hosts []string
	for i, c := range t.Credentials {
		at := fmt.Sprintf("tasks.credentials[%d]", i)
		labels(at+".namespaces", c.Namespaces)
		check(c.Host != "" && !strings.ContainsAny(c.Host, "/@ "), "%s.host: %q is not a host, or host:port", at, c.Host)
		of := slices.Clone(c.Namespaces)
		if len(of) == 0 {
			of = []string{""}
		}
		for _, n := range of { // more than one host for a namespace would depend on their order
			check(!slices.Contains(hosts, n+" "+c.Host), "%s.host: %q is named twice", at, c.Host)
			hosts = append(hosts, n+" "+c.Host)
		}
		check(c.PasswordFile != "", "%s.passwordFile: is needed", at)
		errs = append(errs, readable(at+".passwordFile", c.PasswordFile))
	}
	for key, text := range map[string]string{"clone.max": t.Clone.Max, "exec.memory": t.Exec.Memory, "exec.file": t.Exec.File, "exec.disk": t.Exec.Disk, "exec.output": t.Exec.Output, "clone.total": t.Clone.Total, "documents.max": t.Documents.Max} {
		check(text == "" || size(text) > 0, "tasks.%s: %q is no size, such as 2GiB", key, text)
	}
	check(t.Concurrency >= 0 && t.Concurrency <= 1024, "tasks.concurrency: %d is not from 0 to 1024", t.Concurrency)
	check(t.Clone.Timeout > 0 && t.Clone.Timeout <= 24*time.Hour, "tasks.clone.timeout: %s is not from 1ns to 24h", t.Clone.Timeout)
	check(t.Clone.Depth >= -1 && t.Clone.Depth != 0, "tasks.clone.depth: %d is neither a number of commits nor -1", t.Clone.Depth)
	check(t.Clone.Keep > 0, "tasks.clone.keep: %s is no time", t.Clone.Keep)
	each, total := t.Clone.Sizes()
	check(total == 0 || total >= each, "tasks.clone.total: %s is less than one checkout may have, tasks.clone.max", t.Clone.Total)
	check(t.Documents.PerRepository >= 0, "tasks.documents.perRepository: %d is less than 0", t.Documents.PerRepository)
	check(t.Keep == 0 || t.Keep >= time.Minute, "tasks.keep: %s is neither 0 nor a minute or more", t.Keep)
	check(t.Documents.Keep >= 0, "tasks.documents.keep: %s is less than 0", t.Documents.Keep)
	check(t.Clone.Files > 0, "tasks.clone.files: %d is no number of files", t.Clone.Files)
	check(size(t.Clone.Memory) >= leastMemory, "tasks.clone.memory: %q is not a size of at least 64MiB", t.Clone.Memory)
	check(t.Clone.CPU >= time.Second && t.Clone.CPU%time.Second == 0, "tasks.clone.cpu: %s is no number of whole seconds", t.Clone.CPU)
	check(t.Exec.CPU >= 0 && t.Exec.CPU%time.Second == 0, "tasks.exec.cpu: %s is no number of whole seconds", t.Exec.CPU)
	if uid, _, ok, err := t.Exec.Account(); ok || err != nil {
		check(err == nil, "tasks.exec.user: %v", err)
		check(err != nil || uid != 0, "tasks.exec.user: %q is root", t.Exec.User)
		check(os.Getuid() == 0, "tasks.exec.user: only a server that runs as root can run programs as another user")
	}
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
