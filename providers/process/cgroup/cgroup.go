// Package cgroup bounds the processes of a program as a whole, by control groups of the kernel, where this process may make some: of version 2, where the group that it is in hands on its
// controllers, or of version 1.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits are of all processes of a group together. A zero is no limit.
type Limits struct {
	Memory    int64 // bytes
	Processes int   // and threads
	CPU       int   // thousandths of a processor
}

// The controllers.
const (
	Memory    = "memory"
	Processes = "pids"
	CPU       = "cpu"
)

// period is that in which a group may use its share of the processors, in microseconds.
const period = 100_000

// Kernel is where groups can be made, by controller. The zero value has none.
type Kernel struct {
	dirs    map[string]string
	unified bool // version 2: one group has all controllers
}

// Probe finds out, by making groups and removing them, below root, which is /sys/fs/cgroup but for tests. Missing says of each other controller why it cannot be had.
func Probe(root string) (k Kernel, missing map[string]error) {
	k, missing = Kernel{dirs: map[string]string{}}, map[string]error{}
	_, err := os.Stat(filepath.Join(root, "cgroup.controllers"))
	k.unified = err == nil
	own := ownGroups()
	for _, c := range []string{Memory, Processes, CPU} {
		var errs []error
		for _, at := range k.places(root, c, own) {
			err := k.try(at, c)
			if errs = append(errs, err); err == nil {
				k.dirs[c], errs = at, nil
				break
			}
		}
		if err := errors.Join(errs...); err != nil {
			missing[c] = err
		}
	}
	return k, missing
}

// places are where groups may be made. Of version 2 it is the group above that of this process, as one with processes of its own hands nothing on; what is above a unit of systemd is the
// system's, so that there it is in the unit itself, which says why it cannot be. Of version 1 it is in that of this process, or beside it.
func (k *Kernel) places(root, controller string, own map[string]string) []string {
	if !k.unified {
		return []string{filepath.Join(root, controller, own[controller]), filepath.Join(root, controller)} // in a container, of which the first one may not be seen
	}
	at, unit := filepath.Join(root, own[""]), filepath.Ext(own[""])
	if at == filepath.Clean(root) || unit == ".service" || unit == ".scope" {
		return []string{at}
	}
	return []string{filepath.Dir(at)}
}

// ownGroups are those that this process is in, by controller; that of version 2 by the empty name.
func ownGroups() map[string]string {
	raw, _ := os.ReadFile("/proc/self/cgroup") // empty says that there are none
	all := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				all[c] = f[2]
			}
		}
	}
	return all
}

// delegate is what hands a group on.
const delegate = "with systemd: Delegate=yes and DelegateSubgroup=server"

// try makes a group with a controller, and removes it.
func (k *Kernel) try(at, controller string) error {
	handed := filepath.Join(at, "cgroup.subtree_control")
	before, _ := os.ReadFile(handed) // #nosec G304 -- of the kernel; what cannot be read hands nothing on
	if k.unified {
		if err := write(handed, "+"+controller); err != nil {
			return fmt.Errorf("the group %s does not hand on the controller (%s; and nothing of an earlier start may be left in it): %w", at, delegate, err)
		}
	}
	dir, err := os.MkdirTemp(at, "instar-probe-")
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(dir, k.file(controller)))
	if err == nil && k.unified {
		err = enterable(dir)
	}
	err = errors.Join(err, syscall.Rmdir(dir))
	if err != nil && k.unified && !slices.Contains(strings.Fields(string(before)), controller) { // else processes could not enter what somebody else makes below either
		err = errors.Join(err, write(handed, "-"+controller))
	}
	return err
}

// enterable fails for a group of version 2 that processes cannot enter: one with processes of its own hands on pids and cpu all the same, but for its threads alone.
func enterable(dir string) error {
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type")) // #nosec G304 -- of the kernel
	if err == nil && string(bytes.TrimSpace(kind)) != "domain" {
		err = fmt.Errorf("no process can enter a group in %s (%s), which has some itself (%s)", filepath.Dir(dir), bytes.TrimSpace(kind), delegate)
	}
	return err
}

// file is that with the limit.
func (k *Kernel) file(controller string) string {
	if k.unified || controller == Processes {
		return controller + ".max"
	}
	return map[string]string{Memory: "memory.limit_in_bytes", CPU: "cpu.cfs_quota_us"}[controller]
}

// Has reports whether groups can have a controller.
func (k *Kernel) Has(controller string) bool { return k.dirs[controller] != "" }

// Group is one that a process enters.
type Group struct {
	Dir   string
	Files map[string]string // what is written into which, before
}

// Groups are those that processes of a program enter to be bound, as far as there are controllers; none where nothing is. The name is that of a file.
func (k *Kernel) Groups(name string, l Limits) (groups []Group) {
	quota, unbounded := strconv.Itoa(l.CPU*period/1000), map[string]bool{Memory: l.Memory <= 0, Processes: l.Processes <= 0, CPU: l.CPU <= 0}
	if k.unified {
		quota += " " + strconv.Itoa(period)
	}
	values := map[string]string{Memory: strconv.FormatInt(l.Memory, 10), Processes: strconv.Itoa(l.Processes), CPU: quota}
	for _, c := range slices.Sorted(maps.Keys(k.dirs)) {
		if unbounded[c] {
			continue
		}
		dir := filepath.Join(k.dirs[c], name)
		i := slices.IndexFunc(groups, func(g Group) bool { return g.Dir == dir })
		if i < 0 {
			i, groups = len(groups), append(groups, Group{Dir: dir, Files: map[string]string{}})
		}
		groups[i].Files[k.file(c)] = values[c]
	}
	return groups
}

// Enter makes a group if it is not there, and puts this process into it, with what it starts from now on.
func (g *Group) Enter() error {
	err := os.MkdirAll(g.Dir, 0o755) // #nosec G301 -- of the kernel, as all others
	for name, value := range g.Files {
		err = errors.Join(err, write(filepath.Join(g.Dir, name), value))
	}
	return errors.Join(err, write(filepath.Join(g.Dir, "cgroup.procs"), strconv.Itoa(os.Getpid())))
}

func write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0) // #nosec G304 -- of the kernel
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// patience is for how long what is in a group is killed.
const patience = 5 * time.Second

// Remove removes the groups of a program, and kills what is still in them. That there are none is fine.
func (k *Kernel) Remove(name string) error {
	var errs []error
	for _, at := range slices.Compact(slices.Sorted(maps.Values(k.dirs))) {
		errs = append(errs, remove(filepath.Join(at, name)))
	}
	return errors.Join(errs...)
}

func remove(dir string) error {
	tries := time.NewTicker(10 * time.Millisecond)
	defer tries.Stop()
	for end := time.Now().Add(patience); ; <-tries.C {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if time.Now().After(end) {
			return &os.PathError{Op: "rmdir", Path: dir, Err: err}
		}
		raw, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // #nosec G304 -- of the kernel; the next try says it
		for pid := range strings.FieldsSeq(string(raw)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 1 {
				_ = syscall.Kill(n, syscall.SIGKILL) // it may have ended
			}
		}
	}
}
