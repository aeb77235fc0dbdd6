package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
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

// prepare writes what a release is given, and what bounds it.
func (a *Apps) prepare(r *app.Release) error {
	user, err := a.tenants.User(r.Of())
	if err != nil {
		return err
	}
	if err := app.KeepSecrets(r, a.home(r), user); err != nil {
		return err
	}
	at := filepath.Dir(a.home(r))
	raw, err := json.Marshal(struct { // read over the limits of all releases, which the command has: what this one has none of is left out
		app.Limits
		User int // also 0, which is this server's
	}{r.Limits, user})
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
