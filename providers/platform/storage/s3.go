package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/bcc94042/instar/providers"
)

// S3 has buckets in a store that speaks S3, or prefixes of one bucket. Its fields are set before its first use. The transport of its client is one of [Transport].
//
// What it does not do is keep quotas, of which S3 has none: a store that has some of its own keeps those. The mark of an owner is an object of its own, which readers do not see. A bucket
// without any object is nobody's: as one that a crash has left, it is taken, and removed.
type S3 struct {
	Client *minio.Client
	Region string // of buckets that are made
	Shared string // the bucket in which each tenant has a prefix; empty is a bucket for each
	Prefix string // of the names of all buckets of an installation

	// Installation is the id of an installation, which is a part of the marks: others may use the same account, and have tenants of the same names.
	Installation string
}

var _ Provider = (*S3)(nil)

// markName is the object with the owner of what is around it.
const markName = ".instar-owner"

// place is where a name's objects are.
func (s *S3) place(name string) Bucket {
	endpoint := s.Client.EndpointURL().String()
	if s.Shared != "" {
		prefix := s.Prefix + name + "/"
		return Bucket{ID: "s3/" + s.Shared + "/" + strings.TrimSuffix(prefix, "/"), Name: s.Shared, Prefix: prefix, Endpoint: endpoint}
	}
	return Bucket{ID: "s3/" + s.Prefix + name, Name: s.Prefix + name, Endpoint: endpoint}
}

// mark is what the object of a mark has.
func (s *S3) mark(owner string) string { return strings.TrimSpace(s.Installation + " " + owner) }

// Quotas are not kept: tenants write to the store by themselves.
func (s *S3) Quotas() bool { return false }

// Ensure makes the bucket, or finds that it is there.
func (s *S3) Ensure(ctx context.Context, want Spec) (Bucket, error) {
	if want.Name == "" || want.Owner == "" || want.Quota < 0 || s3utils.CheckValidBucketNameStrict(s.Prefix+want.Name) != nil {
		return Bucket{}, providers.Errorf(providers.Invalid, "a bucket of S3 needs a name of 3 to 63 lower-case letters, digits and -, an owner and a quota that is not negative: %+v", want)
	}
	b := s.place(want.Name)
	want.Owner = s.mark(want.Owner)
	if s.Shared == "" {
		if err := s.create(ctx, b); err != nil {
			return Bucket{}, err
		}
	}
	has, err := s.owner(ctx, b)
	if err == nil && has == "" {
		if has, err = s.take(ctx, b, want.Owner); err != nil {
			return Bucket{}, err
		}
	}
	switch {
	case err != nil:
		return Bucket{}, refused(ctx, "look at", b.ID, err)
	case has != want.Owner:
		return Bucket{}, taken(b.ID, want.Owner, has)
	}
	return b, nil
}

// create makes a bucket, or finds that this account has it. Names are of all accounts of a store, and another one may let everybody write into its bucket.
func (s *S3) create(ctx context.Context, b Bucket) error {
	err := s.Client.MakeBucket(ctx, b.Name, minio.MakeBucketOptions{Region: s.Region})
	switch code := said(err).Code; {
	case err == nil, code == minio.BucketAlreadyOwnedByYou:
		return nil
	case code != minio.BucketAlreadyExists:
		return refused(ctx, "make", b.ID, err)
	}
	own, err := s.Client.ListBuckets(ctx)
	if err != nil {
		return refused(ctx, "see who has", b.ID, err)
	}
	if !slices.ContainsFunc(own, func(i minio.BucketInfo) bool { return i.Name == b.Name }) {
		return providers.Errorf(providers.Invalid, "the bucket %s is another account's: take another name", b.ID)
	}
	return nil
}

// take marks a place for an owner if nothing is there, and says whose it is then.
func (s *S3) take(ctx context.Context, b Bucket, owner string) (string, error) {
	for o := range s.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true, MaxKeys: 2}) {
		switch {
		case o.Err != nil:
			return "", refused(ctx, "look into", b.ID, o.Err)
		case o.Key != b.Prefix+markName: // of one that was faster
			return "", nil
		}
	}
	put := minio.PutObjectOptions{ContentType: "text/plain", DisableMultipart: true}
	put.SetMatchETagExcept("*")
	_, err := s.Client.PutObject(ctx, b.Name, b.Prefix+markName, strings.NewReader(owner), int64(len(owner)), put)
	if code := said(err).StatusCode; err != nil && code != http.StatusPreconditionFailed && code != http.StatusConflict {
		return "", refused(ctx, "mark", b.ID, err)
	}
	has, err := s.owner(ctx, b)
	if err != nil {
		return "", refused(ctx, "look at", b.ID, err)
	}
	return has, nil
}

// owner is whose a place is; empty where there is no mark.
func (s *S3) owner(ctx context.Context, b Bucket) (string, error) {
	o, err := s.Client.GetObject(ctx, b.Name, b.Prefix+markName, minio.GetObjectOptions{})
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	_, err = io.Copy(&text, io.LimitReader(o, 4096))
	if err = errors.Join(err, o.Close()); said(err).Code == minio.NoSuchKey {
		return "", nil
	}
	return text.String(), err
}

// Delete removes what is there if it is the owner's, the mark last.
func (s *S3) Delete(ctx context.Context, name, owner string) error {
	b := s.place(name)
	owner = s.mark(owner)
	has, err := s.owner(ctx, b)
	switch {
	case said(err).Code == minio.NoSuchBucket:
		return nil
	case err != nil:
		return refused(ctx, "look at", b.ID, err)
	case has == "":
		some, err := s.holds(ctx, b)
		if err != nil {
			return refused(ctx, "look into", b.ID, err)
		}
		if !some {
			return s.drop(ctx, b)
		}
		fallthrough
	case has != owner:
		return left(b.ID, owner, has, fmt.Sprintf("write %q into the object %s again", owner, b.Prefix+markName))
	}
	for u := range s.Client.ListIncompleteUploads(ctx, b.Name, b.Prefix, true) {
		if u.Err == nil {
			u.Err = s.Client.RemoveIncompleteUpload(ctx, b.Name, u.Key)
		}
		if u.Err != nil && said(u.Err).Code != minio.NoSuchUpload { // it has ended, or the store says so where there is none at all
			return refused(ctx, "end an upload to", b.ID, u.Err)
		}
	}
	rest := func(key string) bool { return key != b.Prefix+markName }
	for _, goes := range []func(string) bool{rest, func(string) bool { return true }} {
		for _, versions := range []bool{false, true} { // what a store keeps of an object that is removed
			if err := s.clear(ctx, b, versions, goes); err != nil {
				return err
			}
		}
	}
	return s.drop(ctx, b)
}

// holds reports whether there is any object at a place that has no mark, or a version of one. Versions of the mark alone are what an interrupted removal leaves, and go.
func (s *S3) holds(ctx context.Context, b Bucket) (bool, error) {
	var old []minio.ObjectInfo
	for o := range s.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true, WithVersions: true, MaxKeys: 100}) {
		if o.Err != nil || o.Key != b.Prefix+markName || o.IsLatest && !o.IsDeleteMarker { // the last is one that was just written
			return o.Err == nil, o.Err
		}
		old = append(old, o)
	}
	for _, o := range old { // and no other: somebody may take the place meanwhile
		if err := s.Client.RemoveObject(ctx, b.Name, o.Key, minio.RemoveObjectOptions{VersionID: o.VersionID}); err != nil {
			return false, err
		}
	}
	return false, nil
}

// clear removes objects, or versions of them.
func (s *S3) clear(ctx context.Context, b Bucket, versions bool, goes func(key string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, listed := make(chan minio.ObjectInfo), make(chan error, 1)
	go func() {
		defer close(keys)
		for o := range s.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true, WithVersions: versions}) {
			if o.Err != nil {
				listed <- o.Err
				return
			}
			if !goes(o.Key) {
				continue
			}
			select {
			case keys <- o:
			case <-ctx.Done():
				listed <- ctx.Err()
				return
			}
		}
		listed <- nil
	}()
	var first error
	for left := range s.Client.RemoveObjects(ctx, b.Name, keys, minio.RemoveObjectsOptions{}) {
		if first == nil {
			first = left.Err
		}
	}
	cancel() // where the removal gave up before the list did
	for range keys {
	}
	if err := <-listed; first == nil && !errors.Is(err, context.Canceled) {
		first = err
	}
	return refused(ctx, "empty", b.ID, first)
}

// drop removes a bucket that is empty. That there are objects in it is Invalid.
func (s *S3) drop(ctx context.Context, b Bucket) error {
	if b.Prefix != "" {
		return nil
	}
	err := s.Client.RemoveBucket(ctx, b.Name)
	if said(err).Code == minio.NoSuchBucket {
		return nil
	}
	return refused(ctx, "remove", b.ID, err)
}

// Read gives the objects of a place, without the mark.
func (s *S3) Read(ctx context.Context, b Bucket, each func(Object) error) error {
	for o := range s.Client.ListObjectsIter(ctx, b.Name, minio.ListObjectsOptions{Prefix: b.Prefix, Recursive: true}) {
		if o.Err != nil {
			return refused(ctx, "list", b.ID, o.Err)
		}
		if path.Clean(o.Key) == path.Clean(b.Prefix+markName) {
			continue
		}
		get := minio.GetObjectOptions{}
		if err := get.SetMatchETag(o.ETag); err != nil { // else it has changed meanwhile
			return refused(ctx, "read", b.ID, err)
		}
		err := each(Object{Name: strings.TrimPrefix(o.Key, b.Prefix), Bytes: uint64(o.Size), Open: func() (io.ReadCloser, error) { // #nosec G115 -- sizes are not negative
			from, err := s.Client.GetObject(ctx, b.Name, o.Key, get)
			if err != nil {
				return nil, refused(ctx, "read", b.ID, err)
			}
			return &told{from, func(err error) error {
				if said(err).Code == minio.NoSuchKey { // it was listed, so it was removed meanwhile: the next list is without it
					return providers.Errorf(providers.Unavailable, "cannot read the bucket %s: %v", b.ID, err)
				}
				return refused(ctx, "read", b.ID, err)
			}}, nil
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// refused gives an error of the store its code. What the store answers with a status that a request deserves does not pass.
func refused(ctx context.Context, verb, bucket string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch said(err).StatusCode {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict:
		return providers.Errorf(providers.Invalid, "cannot %s the bucket %s: %v", verb, bucket, err)
	}
	return providers.Errorf(providers.Unavailable, "cannot %s the bucket %s: %v", verb, bucket, err)
}

// said is the store's answer in an error's chain; the zero value where there is none.
func said(err error) (r minio.ErrorResponse) {
	_ = errors.As(err, &r) // the zero value says it
	return r
}

// told is the body of an object whose errors have the codes of this package.
type told struct {
	io.ReadCloser
	tell func(error) error
}

func (t *told) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = t.tell(err)
	}
	return n, err
}
