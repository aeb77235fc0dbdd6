package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ErrNoPostgres is the answer of [Start] where Postgres is not installed.
var ErrNoPostgres = errors.New("neither PATH nor /usr/lib/postgresql/*/bin has initdb and postgres: install the package postgresql, or use a server of yours by its DSN")

// binaries finds the directory of initdb and postgres; for a cluster that is there already, of its major version.
func binaries(wanted, data string) (string, error) {
	var dirs []string
	if wanted != "" {
		dirs = []string{wanted}
	} else {
		if initdb, err := exec.LookPath("initdb"); err == nil {
			if real, err := filepath.EvalSymlinks(initdb); err == nil { // postgres lies beside the real one
				dirs = append(dirs, filepath.Dir(real))
			}
		}
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // a constant pattern
		slices.SortFunc(found, func(a, b string) int { return major(b) - major(a) })
		dirs = append(dirs, found...)
	}
	dirs = slices.DeleteFunc(dirs, func(d string) bool { return !executable(d, "initdb") || !executable(d, "postgres") })
	if len(dirs) == 0 {
		return "", ErrNoPostgres
	}
	version, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil { // there is no cluster yet
		return dirs[0], nil
	}
	for _, d := range dirs {
		out, err := exec.Command(filepath.Join(d, "postgres"), "--version").Output() // #nosec G204 -- of the directories of Debian, or of PATH
		fields := strings.Fields(string(out))
		if err == nil && len(fields) > 2 && strings.HasPrefix(fields[2]+".", strings.TrimSpace(string(version))+".") {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s is of version %s, which is not among %s: install it, or dump and restore into another directory",
		data, strings.TrimSpace(string(version)), strings.Join(dirs, ", "))
}

// major is the version in /usr/lib/postgresql/<version>/bin.
func major(dir string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	return n
}

func executable(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// owner is the user that the server runs as when this process is root. A nil owner is this process's own user.
type owner struct {
	name     string
	uid, gid uint32
}

func otherThanRoot() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &owner{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("it cannot run as root, and there is neither a user postgres nor nobody: run this program as another user")
}

func (o *owner) own(path string) error {
	if o == nil {
		return nil
	}
	return os.Chown(path, int(o.uid), int(o.gid))
}

// mkdir makes the directory; parents that are missing let the owner pass, and nobody list them.
func (o *owner) mkdir(dir string) error {
	if o != nil {
		// #nosec G301 -- Postgres runs as another user, who must get through; what is below is closed
		if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
			return err
		}
	}
	return os.MkdirAll(dir, 0o700)
}

func (o *owner) credential() *syscall.Credential {
	if o == nil {
		return nil
	}
	return &syscall.Credential{Uid: o.uid, Gid: o.gid}
}

// reaches refuses a directory below one that the owner may not pass.
func (o *owner) reaches(dir string) error {
	if o == nil {
		return nil
	}
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return err
		}
		pass := info.Mode().Perm()&0o001 != 0
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			switch {
			case s.Uid == o.uid:
				pass = info.Mode().Perm()&0o100 != 0
			case s.Gid == o.gid:
				pass = info.Mode().Perm()&0o010 != 0
			}
		}
		if !pass {
			return fmt.Errorf("it runs as %s (Postgres refuses root), who cannot pass %s: choose another directory, allow it (chmod o+x %s), or run this program as another user", o.name, at, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// take locks a file until it is closed or the process ends.
func take(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("another process uses it: %w", err)
	}
	return f, nil
}
