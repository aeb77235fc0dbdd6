package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// runFile is in the data directory, and says whether a server runs, and how the file system was mounted when it started (mounting). It is written in place, so that a full disk takes it.
const runFile = "run"

// What it begins with. Both are of one length.
const (
	isRunning = "running "
	isStopped = "stopped "
)

// notes are what nats-server notes of a stream every two minutes, beside its messages: where they are, when they expire, and when they are published. It makes them anew where they are
// missing.
var notes = []string{"index.db", "thw.db", "sched.db"}

// afterOutage removes the notes of all streams where the machine has lost its power, or the disk was taken away, while a server ran. They may be ahead of messages that were not on disk,
// whose sequences are given out again: what gets them would expire, or be published, when those should have been. After a mere end of the process they fit. Then it notes that a server
// runs from now on. A member of a cluster has its Raft log.
func (o *Options) afterOutage() error {
	if o.Cluster != nil {
		return nil
	}
	if err := o.forget(); err != nil {
		return err
	}
	return noteRun(o.Dir, isRunning+mounting(o.Dir))
}

// noteRun writes the file, or only its beginning. A full disk is no reason not to serve reads: then the file is emptied, which says that nothing is known.
func noteRun(dir, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, runFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte(text), 0)
		if size := int64(len(text)); err == nil && text != isStopped {
			err = f.Truncate(size)
		}
		if err = errors.Join(err, f.Sync()); IsFull(err) {
			err = f.Truncate(0)
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil && !IsFull(err) {
		return fmt.Errorf("streams: cannot write into the data directory: %w", err)
	}
	return nil
}

// IsFull reports whether an error says that the disk, or what its user may have of it, is used up. That is no reason not to start: what is there can be read and removed.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// forget removes the notes unless they fit for certain.
func (o *Options) forget() error {
	dir, streams := o.Dir, o.streamsDir()
	was, err := os.ReadFile(filepath.Join(dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("streams: cannot read how the data directory was mounted: %w", err)
	}
	if now := mounting(dir); strings.HasPrefix(string(was), isStopped) || now != "" && string(was) == isRunning+now {
		return nil
	}
	all, err := os.ReadDir(streams)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("streams: cannot list the streams of the store: %w", err)
	}
	for _, stream := range all {
		for _, name := range notes {
			if err := os.Remove(filepath.Join(streams, stream.Name(), "msgs", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("streams: cannot remove what may not fit the messages of a stream after a power loss: %w", err)
			}
		}
	}
	o.log().Info("the server was not stopped before the file system was mounted anew, so streams are read whole")
	return nil
}

// stopped notes that none does, and that everything is on disk.
func stopped(dir string) error { return noteRun(dir, isStopped) }

// streamsDir has a directory for each stream.
func (o *Options) streamsDir() string {
	return filepath.Join(o.Dir, "nats", server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams")
}
