// Package archive keeps backups: as files, or as objects of a store that speaks S3.
package archive

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Keep stores what fill writes, whole or not at all, and returns where it lies: "-" is standard output, s3://bucket/key an object, and
// everything else a path. A path or key that is empty, a directory or ends with a slash gets the name added.
func Keep(ctx context.Context, to, name string, stdout io.Writer, fill func(io.Writer) error) (string, error) {
	switch {
	case to == "-":
		return to, fill(stdout)
	case strings.HasPrefix(to, "s3://"):
		return keepObject(ctx, to, name, fill)
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() || to == "" || strings.HasSuffix(to, "/") {
		to = filepath.Join(to, name)
	}
	return to, keepFile(to, fill)
}

// Open reads one. "-" is standard input.
func Open(ctx context.Context, from string, stdin io.Reader) (io.ReadCloser, error) {
	switch {
	case from == "-":
		return io.NopCloser(stdin), nil
	case strings.HasPrefix(from, "s3://"):
		o, err := parse(from)
		if err != nil {
			return nil, err
		}
		object, err := o.client.GetObject(ctx, o.bucket, o.key, minio.GetObjectOptions{})
		if err == nil {
			_, err = object.Stat() // the request is made when somebody reads
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", from, err)
		}
		return object, nil
	}
	return os.Open(from)
}

// keepFile writes a file for its owner only, which gets its name when it is complete and on the disk. It replaces none.
func keepFile(to string, fill func(io.Writer) error) (err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s is there already", to), err)
	}
	f, err := os.CreateTemp(filepath.Dir(to), filepath.Base(to)+".*.part") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = fill(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Link(f.Name(), to); err == nil { // unlike a rename it replaces nothing
		err = os.Remove(f.Name())
	}
	return errors.Join(err, syncDir(filepath.Dir(to)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

type object struct {
	client      *minio.Client
	bucket, key string
}

// partSize of an upload whose length is not known: 10,000 of them are 160 GB, and one of them is held in memory.
const partSize = 16 << 20

// parse reads s3://bucket/key. Keys, region and endpoint are where the tools of S3 look for them: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN or ~/.aws/credentials or the role of the machine; AWS_REGION; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL;
// AWS_CA_BUNDLE.
func parse(text string) (object, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return object{}, fmt.Errorf("%q is not s3://bucket/key", text)
	}
	endpoint, secure, err := endpointOf(cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com"))
	if err != nil {
		return object{}, err
	}
	transport, err := minio.DefaultTransport(secure)
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
	return object{c, u.Host, strings.TrimPrefix(u.Path, "/")}, nil
}

func endpointOf(text string) (host string, secure bool, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", false, fmt.Errorf("AWS_ENDPOINT_URL is %q, which is no http or https URL", text)
	}
	return u.Host, u.Scheme == "https", nil
}

// keepObject uploads what comes. An upload that fails leaves no object.
func keepObject(ctx context.Context, to, name string, fill func(io.Writer) error) (string, error) {
	o, err := parse(to)
	if err != nil {
		return to, err
	}
	if o.key == "" || strings.HasSuffix(o.key, "/") {
		o.key = path.Join(o.key, name)
	}
	at := "s3://" + o.bucket + "/" + o.key
	r, w := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		err := fill(w)
		w.CloseWithError(err)
		filled <- err
	}()
	_, err = o.client.PutObject(ctx, o.bucket, o.key, r, -1, minio.PutObjectOptions{PartSize: partSize, ContentType: "application/zstd"})
	r.CloseWithError(errors.Join(err, io.ErrClosedPipe)) // it was read to its end, or nobody reads any more
	if why := <-filled; why != nil && err == nil {
		return at, why
	}
	if err != nil {
		return at, fmt.Errorf("cannot write %s: %w", at, err)
	}
	return at, nil
}
