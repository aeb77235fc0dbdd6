package app

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/providers"
)

// Homes are the directories of tenants. Each is of one owner, whose mark is beside it.
type Homes struct {
	Dir         string // of all of them
	First, Last int    // users that tenants get, one each; none when they are zero

	// End ends everything that a user runs, before the directory of its tenant goes. Other tenants do not wait for it. It is not called where a user behind Last was given, as in a wider
	// range of before: what it does may end what is of the first one of these, too.
	End func(ctx context.Context, user int) error
	mu  sync.Mutex
}

// User is that of a tenant, which is its own for as long as its directory is there; 0 where tenants get none.
func (h *Homes) User(t Tenant) (int, error) {
	dir, err := h.Path(t)
	if err != nil || h.Last == 0 {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.user(dir)
}

// user is the user of a directory, or one that no directory has had, which is noted beside it: what is left of an earlier tenant, such as a process, is that one's user's. The lock is held.
func (h *Homes) user(dir string) (int, error) {
	id, err := noted(dir + userMark)
	if id != 0 || err != nil {
		return id, err
	}
	given, err := h.given()
	if err != nil {
		return 0, err
	}
	id = max(given+1, h.First)
	if id > h.Last {
		return 0, providers.Errorf(providers.Unavailable, "all users from %d to %d were given to tenants: widen the range at its end", h.First, h.Last)
	}
	for _, note := range []string{filepath.Join(h.Dir, lastUser), dir + userMark} { // in this order: none is given twice
		if err := ownfile.Replace(note, []byte(strconv.Itoa(id))); err != nil {
			return 0, providers.Errorf(providers.Internal, "cannot note whose the user %d is: %v", id, err)
		}
	}
	return id, nil
}

// given is the last user that a directory has got; 0 when none has.
func (h *Homes) given() (int, error) {
	notes, err := filepath.Glob(filepath.Join(h.Dir, "*"+userMark))
	if err != nil {
		return 0, providers.Errorf(providers.Internal, "cannot see which users there are: %v", err)
	}
	last := 0
	for _, note := range append(notes, filepath.Join(h.Dir, lastUser)) { // which an earlier server did not write
		id, err := noted(note)
		if err != nil {
			return 0, err
		}
		last = max(last, id)
	}
	return last, nil
}

// noted is the user that a file has; 0 where there is no such file.
func noted(note string) (int, error) {
	raw, err := os.ReadFile(note) // #nosec G304 -- below the directory of tenants
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, providers.Errorf(providers.Internal, "cannot see which users there are: %v", err)
	}
	id, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, providers.Errorf(providers.Internal, "%s has no user: %v", note, err)
	}
	return id, nil
}

// lastUser is the file with the user that was given last.
const lastUser = ".last-user"

// userMark is what the file with the user of a directory ends with.
const userMark = ".user"

// Path is where the directory of a tenant is, or would be.
func (h *Homes) Path(t Tenant) (string, error) {
	if err := t.Check(); err != nil {
		return "", err
	}
	return filepath.Join(h.Dir, t.Namespace+"."+t.Name), nil
}

// Ensure makes the directory of a tenant, with the mark of its owner. One with another mark is not taken over; one without any, of an earlier server, gets it.
func (h *Homes) Ensure(t Tenant) error {
	dir, err := h.Path(t)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch has, err := ownerOf(dir); {
	case err != nil:
		return err
	case has != "" && has != t.Owner:
		return providers.Errorf(providers.Invalid, "the directory %s is not of %s but of %s: move it away, or take another name", t.Name, t.Owner, has)
	}
	err = ownfile.Replace(markOf(dir), []byte(t.Owner)) // before the directory, which would be nobody's after a crash
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil && h.Last > 0 {
		var id int
		if id, err = h.user(dir); err == nil {
			err = errors.Join(os.Chmod(h.Dir, 0o711), os.Lchown(dir, id, id)) // #nosec G302 -- whoever knows a name gets as far as to what is closed to him
		}
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot make the directory of %s: %v", t.Name, err)
	}
	return nil
}

// Forget ends what the user of a tenant runs, where it has one, and removes its directory with everything in it. That there is none, or only another owner's, is fine.
func (h *Homes) Forget(ctx context.Context, t Tenant) error {
	dir, err := h.Path(t)
	if err != nil {
		return err
	}
	if mine, err := isOf(dir, t.Owner); err != nil || !mine {
		return err
	}
	if err := h.end(ctx, dir); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if mine, err := isOf(dir, t.Owner); err != nil || !mine { // by now
		return err
	}
	if err := removed(dir); err != nil {
		return providers.Errorf(providers.Internal, "cannot remove the directory of %s: %v", t.Name, err)
	}
	return nil
}

// isOf reports whether a directory is an owner's, or nobody's.
func isOf(dir, owner string) (bool, error) {
	has, err := ownerOf(dir)
	return err == nil && (has == "" || has == owner), err
}

// end ends what the user of a directory runs, where one is noted.
func (h *Homes) end(ctx context.Context, dir string) error {
	id, err := noted(dir + userMark)
	if id == 0 || h.End == nil {
		return err
	}
	given, err := h.given()
	if err != nil {
		return err
	}
	if h.Last > 0 && given > h.Last {
		return providers.Errorf(providers.Unavailable, "what the user %d runs is not ended, as that is done under the last user of the range, and users up to %d were given to tenants: widen the range at its end", id, given)
	}
	return h.End(ctx, id)
}

// removed removes a directory, and then the mark of its owner, without which what is left would be anybody's.
func removed(dir string) error {
	if err := ownfile.RemoveAll(dir); err != nil {
		return err
	}
	return errors.Join(ownfile.RemoveAll(dir+userMark), ownfile.RemoveAll(markOf(dir)))
}

// markOf is the file with the owner of a directory. It is beside it, where the tenant's processes do not look.
func markOf(dir string) string { return dir + ".owner" }

// ownerOf is whose a directory is; empty where there is none, or it has no mark.
func ownerOf(dir string) (string, error) {
	_, err := os.Stat(dir)
	var raw []byte
	if err == nil {
		raw, err = os.ReadFile(markOf(dir))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", providers.Errorf(providers.Internal, "cannot see whose the directory %s is: %v", filepath.Base(dir), err)
	}
	return string(raw), nil
}
