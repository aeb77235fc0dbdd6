package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// Row is what is stored of a bucket, under its name. It stays without keys when the bucket has gone.
type Row struct {
	Owner string            `json:"owner"`           // of the bucket
	Made  string            `json:"made,omitempty"`  // [storage.Objects.Made]
	Fence uint64            `json:"fence,omitempty"` // of the last task that has changed the row
	Keys  map[string]string `json:"keys,omitempty"`  // by release: [secret.Credentials], sealed for the owner and the release
}

// Key is what a client of S3 signs its requests with.
type Key struct{ ID, Secret string }

// Credentials are a key as tools of AWS read it from a file.
func (k Key) Credentials() string {
	return fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", k.ID, k.Secret)
}

// Keys are those of all releases.
type Keys struct {
	Rows   *kv.Bucket[Row]
	Seal   *secret.Keys
	Stores *storage.ObjectStores
}

// form is that of a bucket and a release, which an id is made of; nothing else is looked for.
var form = regexp.MustCompile(`^([a-z0-9_-]{1,255})\.([a-z0-9-]{1,63})$`)

func keyID(bucket, release string) string { return bucket + "." + release }

// Give is the key of a release to its tenant's bucket: the same at each call, until it is revoked. Of another owner's bucket, or for a task with a lower fence than one before, there is none.
func (k *Keys) Give(ctx context.Context, bucket, release, owner string, fence uint64) (Key, error) {
	if !form.MatchString(keyID(bucket, release)) {
		return Key{}, providers.Errorf(providers.Invalid, "%q and %q are no names of a bucket and a release", bucket, release)
	}
	row, err := k.change(ctx, bucket, func(row Row) (Row, bool, error) {
		o, err := k.Stores.Objects(ctx, bucket, owner)
		if providers.IsNotFound(err) {
			err = providers.Errorf(providers.Invalid, "%v", err)
		}
		if err != nil {
			return row, false, err
		}
		if row.Owner != owner || row.Made != o.Made {
			row = Row{Owner: owner, Made: o.Made}
		}
		if fence < row.Fence {
			return row, false, providers.Older(fence, row.Fence)
		}
		if row.Keys[release] != "" && row.Fence == fence {
			return row, false, nil
		}
		keys := maps.Clone(row.Keys)
		if keys == nil {
			keys = map[string]string{}
		}
		if keys[release] == "" {
			c := secret.Credentials{User: keyID(bucket, release), Password: rand.Text() + rand.Text()}
			if keys[release], err = k.Seal.Seal(c, owner, release); err != nil {
				return row, false, providers.Errorf(providers.Internal, "cannot seal a key: %v", err)
			}
		}
		row.Keys, row.Fence = keys, fence
		return row, true, nil
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

// Revoke ends the key of a release, if it is of this owner's bucket, and no later task has given it. That there is none is fine.
func (k *Keys) Revoke(ctx context.Context, bucket, release, owner string, fence uint64) error {
	_, err := k.change(ctx, bucket, func(row Row) (Row, bool, error) {
		if row.Owner != owner || fence < row.Fence || row.Keys[release] == "" && row.Fence == fence {
			return row, false, nil
		}
		row.Keys, row.Fence = maps.Clone(row.Keys), fence
		delete(row.Keys, release)
		return row, true, nil
	})
	return err
}

// change writes a row anew, where it is to be another one.
func (k *Keys) change(ctx context.Context, bucket string, change func(Row) (Row, bool, error)) (Row, error) {
	for try := 0; ; try++ {
		row, revision, err := k.row(ctx, bucket)
		if err != nil {
			return Row{}, err
		}
		row, other, err := change(row)
		if err != nil || !other {
			return row, err
		}
		if _, err = k.Rows.Put(ctx, bucket, row, revision); err == nil {
			return row, nil
		}
		if !errors.Is(err, kv.ErrConflict) {
			return Row{}, providers.Errorf(providers.Unavailable, "cannot store the keys of %s: %v", bucket, err)
		}
		if !wait.Backoff(ctx, try) {
			return Row{}, ctx.Err()
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
	return bucket{parts[1], row.Owner, row.Made}, key, err
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
