package clone

import (
	"bytes"
	"context"
	"strconv"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/usage"
)

// census counts what a tree names, before any of it is written: a tree that names itself ten times, and so on for ten levels, is a few hundred bytes, and has more files than a disk.
type census struct {
	most usage.Of
	over func(error) // is called once; nothing is counted after

	n    usage.Of
	rest []byte
	done bool
}

// maxPath is how long a path in a tree may be: the systems below allow no longer ones.
const maxPath = 4096

// add counts a file or a folder.
func (c *census) add(path string, size int64) error {
	c.n.Entries, c.n.Bytes = c.n.Entries+1, c.n.Bytes+size
	return c.fits(c.n, len(path))
}

// fits says why a tree must not be written.
func (c *census) fits(n usage.Of, longest int) error {
	switch {
	case longest > maxPath:
		return providers.Errorf(providers.LimitExceeded, "the repository has a path of more than %d bytes", maxPath)
	case n.Exceeds(c.most):
		return tooLarge(c.most)
	}
	return nil
}

func tooLarge(most usage.Of) error {
	return providers.Errorf(providers.LimitExceeded, "the repository is larger than the %d bytes, or has more than the %d files and folders, that are allowed", most.Bytes, most.Entries)
}

// Write reads what git ls-tree -l -z prints: <mode> <type> <object> <size>\t<path>\0
func (c *census) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	at := c.rest
	for !c.done {
		record, after, found := bytes.Cut(at, []byte{0})
		if !found && len(at) <= maxPath+200 {
			break
		}
		head, path, _ := bytes.Cut(record, []byte{'\t'})
		fields := bytes.Fields(head)
		size := int64(0)
		if len(fields) == 4 {
			size, _ = strconv.ParseInt(string(fields[3]), 10, 64) // "-" of what is no file
		}
		if err := c.add(string(path), size); err != nil {
			c.done = true
			c.over(err)
		}
		at = after
	}
	c.rest = bytes.Clone(at)
	return len(p), nil
}

// measure counts what was fetched, and says why it must not be written.
func (g *program) measure(ctx context.Context, dir string, most usage.Of) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := g.to(ctx, &census{most: most, over: stop}, dir, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", "FETCH_HEAD")
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
