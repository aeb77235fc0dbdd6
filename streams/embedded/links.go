package embedded

// Second links to the files of a bucket. A bucket keeps one value of a key: the server removes the one before, with the file that it is in (a block) when that has become empty, or
// writes the file anew without it when half of it is removed. Where writes are synced in groups (flush.go), that removal could be on disk before the value that replaced the
// removed one, and a power loss would cost both. So each block has a second link in a directory beside: one that is made before a sync counts when the sync has ended, and one whose
// block is removed goes after the sync that follows. A start after a power loss makes the blocks those that are linked. Later ones have nothing that was answered, and a part of them may be
// on disk without what came before it.

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/streams"
)

const (
	blocksDir = "msgs" // of a stream, where nats-server has its blocks
	linksDir  = "kept" // of a stream, beside it: the links, and what mounting says
	blockFile = ".blk" // a number is before it, which counts up
	nextFile  = ".new" // is after the name of a link that counts when the sync under way has ended
	indexFile = "index.db"
	runFile   = "run" // what mounting said when the links were begun

	settled = 20 * time.Millisecond // a directory that was changed so long ago has another time when it is changed again
)

// links are those of one bucket. They are used by one goroutine at a time.
type links struct {
	blocks, dir string
	of          map[string]os.FileInfo // by name of the block
	made        []string               // what does not count yet
	last        os.FileInfo            // of blocks, when they were last the same as the links; nil: look
}

// newLinks links all blocks of a stream that is synced, and that nothing is written to.
func newLinks(stream string) (*links, error) {
	l := &links{blocks: filepath.Join(stream, blocksDir), dir: filepath.Join(stream, linksDir), of: map[string]os.FileInfo{}}
	if err := os.RemoveAll(l.dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(l.dir, runFile), []byte(mounting(stream)), 0o600); err != nil {
		return nil, err
	}
	after, err := l.before()
	if err != nil {
		return nil, err
	}
	return l, after()
}

// changed reports whether there may be blocks without links, or links without blocks.
func (l *links) changed() bool {
	now, err := os.Stat(l.blocks)
	return err != nil || l.last == nil || !os.SameFile(now, l.last) || !now.ModTime().Equal(l.last.ModTime())
}

// before links what is not linked yet, and returns what to do after the sync that begins now: until then the links of blocks that are removed are what a power loss leaves.
func (l *links) before() (after func() error, err error) {
	if !l.changed() {
		return func() error { return nil }, nil
	}
	l.last = nil
	for _, name := range l.made {
		if err := os.Remove(filepath.Join(l.dir, name+nextFile)); err != nil {
			return nil, err
		}
	}
	l.made = nil
	dir, err := os.Stat(l.blocks)
	looked := time.Now()
	var list []os.DirEntry
	if err == nil {
		list, err = os.ReadDir(l.blocks)
	}
	if errors.Is(err, fs.ErrNotExist) { // the bucket is being purged, or deleted
		return func() error { return nil }, nil
	} else if err != nil {
		return nil, err
	}
	of := map[string]os.FileInfo{}
	for _, e := range list {
		name := e.Name()
		if !strings.HasSuffix(name, blockFile) {
			continue
		}
		if is, err := e.Info(); err == nil && l.of[name] != nil && os.SameFile(is, l.of[name]) {
			of[name] = is
			continue
		}
		to := filepath.Join(l.dir, name+nextFile)
		if err := os.Link(filepath.Join(l.blocks, name), to); errors.Is(err, fs.ErrNotExist) { // removed meanwhile, for what the sync that begins now has
			continue
		} else if err != nil {
			return nil, err
		}
		l.made = append(l.made, name)
		if of[name], err = os.Stat(to); err != nil {
			return nil, err
		}
	}
	return func() error {
		added := false
		for _, name := range l.made {
			added = added || l.of[name] == nil
			if err := os.Rename(filepath.Join(l.dir, name+nextFile), filepath.Join(l.dir, name)); err != nil {
				return err
			}
		}
		for name := range l.of {
			if of[name] == nil {
				if err := os.Remove(filepath.Join(l.dir, name)); err != nil {
					return err
				}
			}
		}
		if l.made, l.of = nil, of; looked.Sub(dir.ModTime()) > settled {
			l.last = dir
		}
		if !added {
			return nil
		}
		return syncDir(l.dir) // or a block would not count that has what is answered now
	}, nil
}

// canLink reports whether the file system has links.
func canLink(dir string) error {
	at, err := os.MkdirTemp(dir, "link-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(at)
	from := filepath.Join(at, "a")
	if err := os.WriteFile(from, nil, 0o600); err != nil {
		return err
	}
	return os.Link(from, filepath.Join(at, "b"))
}

// restoreLinks puts the blocks back that a power loss may have cost the buckets below dir, syncs the file system if it is told to or there were links, and removes those: a server that
// starts syncs each write. What was written after the last sync, and so not answered, may be lost.
func restoreLinks(dir string, always bool, log *slog.Logger) error {
	all, err := filepath.Glob(filepath.Join(dir, streamsDir, streams.BucketStream("*"), linksDir))
	if err != nil {
		return err
	}
	for _, at := range all {
		stream := filepath.Dir(at)
		run, err := os.ReadFile(filepath.Join(at, runFile))
		if now := mounting(stream); err == nil && now != "" && string(run) == now {
			continue // what was written is there, on disk or not
		}
		restored, removed, err := restore(filepath.Join(stream, blocksDir), at)
		if err != nil {
			return fmt.Errorf("streams: cannot restore blocks of %s after a power loss: %w", filepath.Base(stream), err)
		}
		if restored+removed > 0 {
			log.Info("a bucket is as of its last sync before a power loss", "stream", filepath.Base(stream), "restored", restored, "removed", removed)
		}
	}
	if always || len(all) > 0 {
		err = syncFiles(dir)
	}
	for _, at := range all {
		if err == nil {
			err = os.RemoveAll(at)
		}
	}
	return err
}

// restore makes the blocks those that are linked.
func restore(blocks, dir string) (restored, removed int, err error) {
	linked, err := filesOf(dir)
	if err != nil {
		return 0, 0, err
	}
	there, err := filesOf(blocks)
	if errors.Is(err, fs.ErrNotExist) { // the bucket was being purged: the server knows what to do
		return 0, 0, nil
	} else if err != nil {
		return 0, 0, err
	}
	last := -1
	for number, is := range linked {
		if last = max(last, number); there[number] != nil && os.SameFile(there[number], is) {
			continue
		}
		to := filepath.Join(blocks, is.Name())
		if err := errors.Join(ignore(os.Remove(to)), os.Link(filepath.Join(dir, is.Name()), to)); err != nil {
			return restored, removed, err
		}
		restored++
	}
	for number, is := range there {
		if last >= 0 && number > last {
			if err := os.Remove(filepath.Join(blocks, is.Name())); err != nil {
				return restored, removed, err
			}
			removed++
		}
	}
	if restored+removed > 0 {
		err = ignore(os.Remove(filepath.Join(blocks, indexFile))) // it is of other blocks
	}
	return restored, removed, err
}

// filesOf are the blocks in a directory by their numbers.
func filesOf(dir string) (map[int]os.FileInfo, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[int]os.FileInfo{}
	for _, e := range list {
		digits, ok := strings.CutSuffix(e.Name(), blockFile)
		number, err := strconv.Atoi(digits)
		if !ok || err != nil {
			continue
		}
		if files[number], err = e.Info(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func ignore(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
