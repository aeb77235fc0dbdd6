// Package archive keeps backups, and what is exported: as files, or as objects of a store that speaks S3.
package archive

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/bcc94042/instar/internal/s3"
)

// Keep stores what fill writes, whole or not at all, and returns where it lies: "-" is standard output, s3://bucket/key an object, and
// everything else a path, unless it looks like an address. A key that is empty, a path that is a directory, and what ends with a slash get the name added. What becomes an object is a
// temporary file first, as large as it is, in $TMPDIR or else /tmp.
func Keep(ctx context.Context, to, name string, stdout io.Writer, fill func(io.Writer) error) (string, error) {
	switch {
	case to == "-":
		return to, fill(stdout)
	case strings.HasPrefix(to, "s3://"):
		return keepObject(ctx, to, name, fill)
	case address.MatchString(to):
		return to, noPlace(to)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() || to == "" || strings.HasSuffix(to, "/") {
		to = filepath.Join(to, name)
	}
	return to, keepFile(to, naming{os.Link, renameExclusive}, fill)
}

// Open reads one. "-" is standard input.
func Open(ctx context.Context, from string, stdin io.Reader) (io.ReadCloser, error) {
	switch {
	case from == "-":
		out, in := io.Pipe() // a read of a pipe that stalls does not end with ctx
		context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
		go func() {
			_, err := io.Copy(in, stdin)
			_ = in.CloseWithError(err)
		}()
		return out, nil
	case strings.HasPrefix(from, "s3://"):
		o, err := parse(from)
		if err != nil {
			return nil, err
		}
		return o.open(ctx, from)
	case address.MatchString(from):
		return nil, noPlace(from)
	}
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: name the backup in it", from)
	}
	return os.Open(from)
}

// address is what is meant for something else than a path.
var address = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:/`)

func noPlace(text string) error {
	return fmt.Errorf("%q is no place for backups: it is a path, - or s3://bucket/key (a path of that name is ./%s)", text, text)
}

// keepFile writes a file for its owner only, which gets its name when it is complete and on the disk. It replaces none.
func keepFile(to string, how naming, fill func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	switch _, err := os.Lstat(to); {
	case err == nil:
		return fmt.Errorf("%s is there already: %w", to, fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*.part") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			if gone := os.Remove(f.Name()); !errors.Is(gone, fs.ErrNotExist) { // it may have its name by now
				err = errors.Join(err, gone)
			}
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = how.give(f.Name(), to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// naming is how a file gets a name that no other one has: by a link, or a rename that replaces nothing.
type naming struct{ link, rename func(from, to string) error }

// give moves a file. Where the file system has no links (exFAT, many shares) it renames, and where that may replace something, looks before.
func (n naming) give(from, to string) error {
	err := n.link(from, to)
	if err == nil {
		if err = os.Remove(from); err != nil {
			err = errors.Join(err, os.Remove(to))
		}
		return err
	}
	if n.rename(from, to) == nil {
		return nil
	}
	if _, err := os.Lstat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: fs.ErrExist}
	}
	return os.Rename(from, to)
}

// syncDir brings the name to the disk, where the file system can.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// within is for how long a store may say nothing; tests have less.
var within = s3.Silent

type object struct {
	client      *minio.Client
	bucket, key string
}

// parse reads s3://bucket/key, which is no URL: the key is taken as it is written. Access keys, region and endpoint are where the tools of S3 look for them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN or ~/.aws/credentials or the role of the machine; AWS_REGION; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL;
// AWS_CA_BUNDLE.
func parse(text string) (object, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(text, "s3://"), "/")
	if bucket == "" {
		return object{}, fmt.Errorf("%q is not s3://bucket/key", text)
	}
	endpoint, secure, err := endpointOf(cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com"))
	if err != nil {
		return object{}, err
	}
	transport, err := s3.Transport(secure, within)
	if err != nil {
		return object{}, fmt.Errorf("cannot use %s: %w", text, err)
	}
	if bundle := os.Getenv("AWS_CA_BUNDLE"); bundle != "" && secure {
		pem, err := os.ReadFile(bundle)
		if err != nil {
			return object{}, fmt.Errorf("AWS_CA_BUNDLE: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return object{}, fmt.Errorf("AWS_CA_BUNDLE: %s holds no certificate", bundle)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	c, err := minio.New(endpoint, &minio.Options{Transport: transport, Secure: secure, Region: cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")), Creds: credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})})
	if err != nil {
		return object{}, fmt.Errorf("cannot use %s: %w", text, err)
	}
	return object{c, bucket, key}, nil
}

func endpointOf(text string) (host string, secure bool, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", false, errors.New("AWS_ENDPOINT_URL is no http or https URL")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", false, fmt.Errorf("AWS_ENDPOINT_URL is %q: it may be scheme, host and port only, and the store be at the root of that host", u.Redacted())
	}
	return u.Host, u.Scheme == "https", nil
}

// keepObject uploads what comes, when all of it is there: whoever fills must not wait for a slow store, and the store gets no half of it.
func keepObject(ctx context.Context, to, name string, fill func(io.Writer) error) (string, error) {
	o, err := parse(to)
	if err != nil {
		return to, err
	}
	if o.key == "" || strings.HasSuffix(o.key, "/") {
		o.key += name
	}
	at := "s3://" + o.bucket + "/" + o.key
	if err := o.writable(ctx); err != nil { // it takes long until all is there
		return at, fmt.Errorf("cannot write %s: %w", at, err)
	}
	f, size, err := spool(fill)
	if err != nil {
		return at, err
	}
	defer f.Close()
	if _, err = o.client.PutObject(ctx, o.bucket, o.key, f, size, minio.PutObjectOptions{ContentType: "application/zstd"}); err != nil {
		return at, fmt.Errorf("cannot write %s: %w", at, err)
	}
	kept, err := o.client.StatObject(ctx, o.bucket, o.key, minio.StatObjectOptions{})
	switch {
	case minio.ToErrorResponse(err).StatusCode == http.StatusForbidden: // whoever makes backups need not be able to read them
		return at, nil
	case err != nil:
		return at, fmt.Errorf("cannot look at %s, which was written: %w", at, err)
	case kept.Size != size:
		return at, fmt.Errorf("%s has %d bytes, and %d were sent", at, kept.Size, size)
	}
	return at, nil
}

// writable asks the store for leave to write the object, and takes nothing up.
func (o object) writable(ctx context.Context) error {
	c := minio.Core{Client: o.client}
	upload, err := c.NewMultipartUpload(ctx, o.bucket, o.key, minio.PutObjectOptions{ContentType: "application/zstd"})
	if err == nil {
		_ = c.AbortMultipartUpload(ctx, o.bucket, o.key, upload) // it holds nothing
	}
	return err
}

// spool gives what was filled, from its beginning. The file has no name, so that it goes with the process, however that ends.
func spool(fill func(io.Writer) error) (f *os.File, size int64, err error) {
	if f, err = os.CreateTemp("", "instar-*.backup.part"); err != nil { // 0600
		return nil, 0, fmt.Errorf("cannot write a temporary file (TMPDIR says where): %w", err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // it is of no use any more
		}
	}()
	if err = os.Remove(f.Name()); err != nil {
		return nil, 0, err
	}
	if err = fill(f); err != nil {
		return nil, 0, err
	}
	if size, err = f.Seek(0, io.SeekCurrent); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	return f, size, err
}
