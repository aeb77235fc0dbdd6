package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/secret"
)

// Row is what is stored of a bucket, under its name. It stays without keys when the bucket has gone.
type Row struct {
	Owner string            `json:"owner"`          // of the bucket
	Keys  map[string]string `json:"keys,omitempty"` // by release: [secret.Credentials], sealed for the owner and the release
}

// Key is what a client of S3 signs its requests with.
type Key struct{ ID, Secret string }

// Credentials are a key as tools of AWS read it from a file.
func (k Key) Credentials() string {
	return fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", k.ID, k.Secret)
}

// Keys are those of all releases.
type Keys struct {
	Rows *kv.Bucket[Row]
	Seal *secret.Keys
}

// form is that of a bucket and a release, which an id is made of; nothing else is looked for.
var form = regexp.MustCompile(`^([a-z0-9_-]{1,255})\.([a-z0-9-]{1,63})$`)

func keyID(bucket, release string) string { return bucket + "." + release }

// Give is the key of a release to its tenant's bucket: the same at each call, until it is revoked.
func (k *Keys) Give(ctx context.Context, bucket, release, owner string) (Key, error) {
	if !form.MatchString(keyID(bucket, release)) {
		return Key{}, providers.Errorf(providers.Invalid, "%q and %q are no names of a bucket and a release", bucket, release)
	}
	key := Key{ID: keyID(bucket, release), Secret: rand.Text() + rand.Text()}
	sealed, err := k.Seal.Seal(secret.Credentials{User: key.ID, Password: key.Secret}, owner, release)
	if err != nil {
		return Key{}, providers.Errorf(providers.Internal, "cannot seal a key: %v", err)
	}
	row, err := k.change(ctx, bucket, func(row Row) (Row, bool) {
		if row.Owner != owner {
			row = Row{Owner: owner}
		}
		if row.Keys[release] != "" {
			return row, false
		}
		if row.Keys = maps.Clone(row.Keys); row.Keys == nil {
			row.Keys = map[string]string{}
		}
		row.Keys[release] = sealed
		return row, true
	})
	if err != nil {
		return Key{}, err
	}
	return k.open(row, release)
}

// Known are the keys to a bucket that can be opened.
func (k *Keys) Known(ctx context.Context, bucket string) (all []Key, err error) {
	row, _, err := k.row(ctx, bucket)
	for release := range row.Keys {
		key, cannot := k.open(row, release)
		if cannot != nil {
			err = errors.Join(err, cannot)
			continue
		}
		all = append(all, key)
	}
	return all, err
}

// Revoke ends the key of a release, if it is of this owner's bucket. That there is none is fine.
func (k *Keys) Revoke(ctx context.Context, bucket, release, owner string) error {
	_, err := k.change(ctx, bucket, func(row Row) (Row, bool) {
		if row.Owner != owner || row.Keys[release] == "" {
			return row, false
		}
		row.Keys = maps.Clone(row.Keys)
		delete(row.Keys, release)
		return row, true
	})
	return err
}

// change writes a row anew, where it is to be another one.
func (k *Keys) change(ctx context.Context, bucket string, change func(Row) (Row, bool)) (Row, error) {
	for {
		row, revision, err := k.row(ctx, bucket)
		if err != nil {
			return Row{}, err
		}
		row, other := change(row)
		if !other {
			return row, nil
		}
		if _, err = k.Rows.Put(ctx, bucket, row, revision); err == nil {
			return row, nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return Row{}, providers.Errorf(providers.Unavailable, "cannot store the keys of %s: %v", bucket, err)
		}
	}
}

// find is the bucket of an id, its row and the key, zero ones where there is none.
func (k *Keys) find(ctx context.Context, id string) (bucket, Key, error) {
	parts := form.FindStringSubmatch(id)
	if parts == nil {
		return bucket{}, Key{}, nil
	}
	row, _, err := k.row(ctx, parts[1])
	if err != nil || row.Keys[parts[2]] == "" {
		return bucket{}, Key{}, err
	}
	key, err := k.open(row, parts[2])
	return bucket{parts[1], row.Owner}, key, err
}

// row is what is stored of a bucket, the zero one where there is nothing.
func (k *Keys) row(ctx context.Context, bucket string) (Row, uint64, error) {
	e, err := k.Rows.Get(ctx, bucket)
	if errors.Is(err, kv.ErrNotFound) {
		return Row{}, 0, nil
	}
	if err != nil {
		return Row{}, 0, providers.Errorf(providers.Unavailable, "cannot read the keys of %s: %v", bucket, err)
	}
	return e.Value, e.Revision, nil
}

func (k *Keys) open(row Row, release string) (Key, error) {
	c, err := k.Seal.Unseal(row.Keys[release], row.Owner, release)
	if err != nil {
		return Key{}, providers.Errorf(providers.Internal, "cannot open the key of %s: %v", release, err)
	}
	return Key{ID: c.User, Secret: c.Password}, nil
}
