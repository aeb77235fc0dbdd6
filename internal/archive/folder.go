package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
)

// Folder holds files that do not change once they are there: below a directory, or as objects of a bucket. Use [OpenFolder].
type Folder struct {
	dir    string
	object // whose key ends with a slash, or is empty
}

// OpenFolder is the one at an absolute path, or s3://bucket/prefix, whose access keys, region and endpoint are where [Keep] looks for them. It asks nobody whether it is there: a directory is made when it
// gets its first file, a bucket has to be there.
func OpenFolder(at string) (*Folder, error) {
	if !strings.HasPrefix(at, "s3://") {
		if !filepath.IsAbs(at) {
			return nil, fmt.Errorf("%q is neither an absolute path nor s3://bucket/prefix", at)
		}
		return &Folder{dir: at}, nil
	}
	o, err := parse(at)
	if o.key = strings.Trim(o.key, "/"); o.key != "" {
		o.key += "/"
	}
	return &Folder{object: o}, err
}

// Last is the name of the last file of a folder in it, by the order of names; empty where there is none.
func (f *Folder) Last(ctx context.Context, folder string) (last string, err error) {
	if f.client == nil {
		files, err := os.ReadDir(filepath.Join(f.dir, folder))
		for _, file := range files {
			if name := file.Name(); !file.IsDir() && !strings.HasSuffix(name, ".part") {
				last = path.Join(folder, name)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return last, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a listing that is left
	for o := range f.client.ListObjects(ctx, f.bucket, minio.ListObjectsOptions{Prefix: f.key + folder + "/"}) {
		if o.Err != nil {
			return "", fmt.Errorf("cannot list %s: %w", f.at(folder), o.Err)
		}
		last = max(last, strings.TrimPrefix(o.Key, f.key))
	}
	return last, nil
}

// Read is what a file has.
func (f *Folder) Read(ctx context.Context, name string) ([]byte, error) {
	if f.client == nil {
		return os.ReadFile(filepath.Join(f.dir, name))
	}
	d, err := object{f.client, f.bucket, f.key + name}.open(ctx, f.at(name))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return io.ReadAll(d)
}

// Add stores a file, whole or not at all, and in a directory for its owner only. The error is [fs.ErrExist] where there is one of that name. A store has to know writes that are
// conditional (If-None-Match), as S3 and MinIO do.
func (f *Folder) Add(ctx context.Context, name string, data []byte) error {
	if f.client == nil {
		return keepFile(filepath.Join(f.dir, name), naming{os.Link, renameExclusive}, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*")
	_, err := f.client.PutObject(ctx, f.bucket, f.key+name, bytes.NewReader(data), int64(len(data)), o)
	switch status := minio.ToErrorResponse(err).StatusCode; {
	case err != nil && (status == http.StatusPreconditionFailed || status == http.StatusConflict):
		return &fs.PathError{Op: "write", Path: f.at(name), Err: syscall.EEXIST}
	case err != nil:
		return fmt.Errorf("cannot write %s: %w", f.at(name), err)
	}
	return nil
}

func (f *Folder) at(name string) string { return "s3://" + f.bucket + "/" + f.key + name }
