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

// OpenFolder is the one at the absolute path of a directory, which has to be there, or s3://bucket/prefix, whose access keys, region and endpoint are where [Keep] looks for them. It does not ask the store.
func OpenFolder(at string) (*Folder, error) {
	if !strings.HasPrefix(at, "s3://") {
		if !filepath.IsAbs(at) {
			return nil, fmt.Errorf("%q is neither an absolute path nor s3://bucket/prefix", at)
		}
		f := &Folder{dir: at}
		return f, f.there()
	}
	o, err := parse(at)
	if o.key = strings.Trim(o.key, "/"); o.key != "" {
		o.key += "/"
	}
	return &Folder{object: o}, err
}

// there fails where the directory is not: a share that is not mounted is not to be made.
func (f *Folder) there() error {
	info, err := os.Stat(f.dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: f.dir, Err: syscall.ENOTDIR}
	}
	return err
}

// Last is the name of the last file of a folder in it that has an ending, by the order of names; empty where there is none.
func (f *Folder) Last(ctx context.Context, folder, ending string) (last string, err error) {
	if f.client == nil {
		if err := f.there(); err != nil {
			return "", err
		}
		files, err := os.ReadDir(filepath.Join(f.dir, folder))
		for _, file := range files {
			if name := file.Name(); !file.IsDir() && strings.HasSuffix(name, ending) {
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
		if strings.HasSuffix(o.Key, ending) {
			last = max(last, strings.TrimPrefix(o.Key, f.key))
		}
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
		if err := f.there(); err != nil {
			return err
		}
		return keepFile(filepath.Join(f.dir, name), naming{os.Link, renameExclusive}, func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
	}
	o := minio.PutObjectOptions{SendContentMd5: true} // S3 wants it where objects are locked
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
