package process

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process/cgroup"
)

// limitsName is the file with what bounds the processes of one release, beside its directory, where they do not write.
const limitsName = "limits.json"

// passable is what lets other users through a directory, without a look at what it has.
const passable = 0o711

// reachable makes a directory through which the users of tenants get to theirs, or fails where one above it is closed to them.
func reachable(dir string) error {
	if os.Getuid() != 0 {
		return errors.New("only a server that is root can give tenants users of their own: start it as root, or leave the range of users out")
	}
	if err := capable("/proc/self/status"); err != nil {
		return err
	}
	err := os.MkdirAll(dir, passable)
	for at := dir; err == nil && at != filepath.Dir(at); at = filepath.Dir(at) {
		var info os.FileInfo
		if at == dir || at == filepath.Dir(dir) { // which are those of applications
			err = os.Chmod(at, passable) // #nosec G302 -- as the constant says
		}
		if err == nil {
			info, err = os.Stat(at)
		}
		if err == nil && info.Mode()&1 == 0 {
			err = fmt.Errorf("%s lets no other user through, so tenants' own could not reach their directories: chmod o+x it, or have the applications elsewhere", at)
		}
	}
	return err
}

// needed are the capabilities, by their numbers in the kernel, without which root cannot do what there is to do for the users of tenants.
var needed = []struct {
	bit  uint
	name string
}{{0, "CAP_CHOWN"}, {1, "CAP_DAC_OVERRIDE"}, {5, "CAP_KILL"}, {6, "CAP_SETGID"}, {7, "CAP_SETUID"}}

// capable fails where this server, root as it is, was left without one of them, as by a service manager or an engine of containers.
func capable(status string) error {
	raw, err := os.ReadFile(status) // #nosec G304 -- of the kernel
	if errors.Is(err, os.ErrNotExist) {
		return nil // a system that knows none
	}
	for line := range strings.Lines(string(raw)) {
		value, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		var has uint64
		if has, err = strconv.ParseUint(strings.TrimSpace(value), 16, 64); err != nil {
			break
		}
		var missing []string
		for _, c := range needed {
			if has&(1<<c.bit) == 0 {
				missing = append(missing, c.name)
			}
		}
		if missing != nil {
			return fmt.Errorf("this server is root without %s, so it cannot give tenants users of their own: let it have them (of a unit of systemd: CapabilityBoundingSet=, docs/operations.md), or leave the range of users out", strings.Join(missing, ", "))
		}
	}
	return err
}

const (
	patience = 10 * time.Second // for which what was killed is waited for
	once     = 5 * time.Second  // that one try to kill it has, on a machine that has much to do
)

// end ends everything that a user runs, also what has left its release and has taken its mark out of its environment. What is of the last user of the range, which no tenant has, ends with it.
func (a *Apps) end(ctx context.Context, user int) error {
	command := append(a.gateway.Self(), "end", strconv.Itoa(user), strconv.Itoa(a.config.LastUser))
	for until := (time.Time{}); ; {
		said, failed := killed(ctx, command)
		if until.IsZero() {
			until = time.Now().Add(patience)
		}
		left, err := ofUser(user)
		switch {
		case err != nil:
			return providers.Errorf(providers.Internal, "cannot see what the user %d runs: %v", user, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case len(left) == 0 && !cut(failed): // else nobody knows whether it came so far
			return nil
		case time.Now().After(until):
			return providers.Errorf(providers.Unavailable, "the processes %v of the user %d do not end: %v %s", left, user, failed, bytes.TrimSpace(said))
		}
		if err := wait.Pause(ctx, poll); err != nil {
			return err
		}
	}
}

// killed runs a command, which has a time of its own and none of this server's variables.
func killed(ctx context.Context, command []string) (said []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) // #nosec G204 -- this program
	cmd.Env, cmd.WaitDelay = []string{}, time.Second
	return cmd.CombinedOutput()
}

// cut reports whether a command was ended by a signal, or had no time to begin.
func cut(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited() || errors.Is(err, context.DeadlineExceeded)
}

// ofUser are the processes of a user that have not ended: also one whose first thread has, and others have not.
func ofUser(user int) (pids []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	for _, name := range files {
		raw, err := os.ReadFile(name) // #nosec G304 -- of the kernel
		if err != nil {               // it has ended
			continue
		}
		var state, threads string
		var users []string
		for line := range strings.Lines(string(raw)) {
			switch key, value, _ := strings.Cut(line, ":"); key {
			case "State":
				state = strings.TrimSpace(value)
			case "Threads":
				threads = strings.TrimSpace(value)
			case "Uid":
				users = strings.Fields(value)
			}
		}
		ended := strings.HasPrefix(state, "X") || strings.HasPrefix(state, "Z") && threads == "1"
		if slices.Contains(users, strconv.Itoa(user)) && !ended {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids, err
}

// Bounds tells which limits hold less than they say, where this server may make no control groups: what each process may have is all that is limited then, and of processor time nothing is.
func (a *Apps) Bounds(l app.Limits) (notes []string, err error) {
	if l.CPU > 0 && !a.kernel.Has(cgroup.CPU) {
		return nil, providers.Errorf(providers.Invalid, "the processor time of a release cannot be limited, as this server may make no control groups for it: give it some (docs/platform.md, Isolation), or leave cpu out: %v", a.missing[cgroup.CPU])
	}
	for _, of := range []struct {
		controller, instead string
		wanted              bool
	}{{cgroup.Memory, "for each of its processes", l.Memory > 0}, {cgroup.Processes, "for the user of its tenant", l.Processes > 0}} {
		if of.wanted && !a.kernel.Has(of.controller) {
			notes = append(notes, fmt.Sprintf("the limit of a release (%s) holds %s, and not for all together, as this server may make no control groups for it", of.controller, of.instead))
		}
	}
	return notes, nil
}

// groups are those of the kernel that bound a release as a whole.
func (a *Apps) groups(r *app.Release) ([]cgroup.Group, error) {
	notes, err := a.Bounds(r.Limits)
	if err != nil {
		return nil, err
	}
	for _, note := range notes {
		a.config.Log.Warn(note, "release", r.Name, "error", errors.Join(slices.Collect(maps.Values(a.missing))...))
	}
	return a.kernel.Groups(a.group(r), cgroup.Limits{Memory: r.Limits.Memory, Processes: r.Limits.Processes, CPU: r.Limits.CPU}), nil
}

// group is the name of those of a release. Other servers of this machine have others.
func (a *Apps) group(r *app.Release) string {
	sum := sha256.Sum256([]byte(a.config.Dir))
	return fmt.Sprintf("instar-%x-%s.%s", sum[:4], r.Namespace, r.Name)
}

// prepare writes what a release is given, and what bounds it.
func (a *Apps) prepare(r *app.Release) error {
	user, err := a.tenants.User(r.Of())
	if err != nil {
		return err
	}
	if err := app.KeepSecrets(r, a.home(r), user); err != nil {
		return err
	}
	groups, err := a.groups(r)
	if err != nil {
		return err
	}
	at := filepath.Dir(a.home(r))
	raw, err := json.Marshal(struct { // read over the limits of all releases, which the command has: what this one has none of is left out
		app.Limits
		User   int // also 0, which is this server's
		Groups []cgroup.Group
	}{r.Limits, user, groups})
	if err == nil {
		err = ownfile.Replace(filepath.Join(at, limitsName), raw)
	}
	if err == nil && user != 0 {
		err = os.Chmod(at, passable) // #nosec G302 -- as the constant says
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot write what bounds %s: %v", r.Name, err)
	}
	return nil
}
