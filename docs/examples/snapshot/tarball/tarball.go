// Package tarball makes and erases snapshots as compressed tar files: the provider of the example.
package tarball

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/bcc94042/instar/docs/examples/snapshot"
	"github.com/bcc94042/instar/machines"
)

// Provider keeps snapshots in a directory, one file per entity.
type Provider struct{ Dir string }

// Perform does one task. It may be called twice for the same one: the file is written beside the old one and renamed.
func (p Provider) Perform(ctx context.Context, t machines.Task) machines.Result {
	var body snapshot.Task
	if err := json.Unmarshal(t.Data, &body); err != nil {
		return failure("invalid", err, false)
	}
	file := filepath.Join(p.Dir, t.Key()+".tar.gz")
	if t.Effect == "erase" {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failure("internal", err, true)
		}
		return machines.Result{}
	}
	size, err := write(ctx, file+"."+t.Attempt, body.Directory)
	if err == nil {
		err = os.Rename(file+"."+t.Attempt, file)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return failure("not-found", err, false)
	} else if err != nil {
		return failure("internal", err, true)
	}
	return machines.Result{Data: snapshot.Taken{File: file, Bytes: size}}
}

func failure(code string, err error, retryable bool) machines.Result {
	return machines.Result{Failure: &machines.Failure{Code: code, Message: err.Error(), Retryable: retryable}}
}

func write(ctx context.Context, file, dir string) (int64, error) {
	if _, err := os.Stat(dir); err != nil {
		return 0, err
	}
	out, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	if err := archive.AddFS(os.DirFS(dir)); err != nil {
		return 0, fmt.Errorf("cannot copy %s: %w", dir, err)
	}
	if err := errors.Join(archive.Close(), zip.Close(), out.Sync(), ctx.Err()); err != nil {
		return 0, err
	}
	info, err := out.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
