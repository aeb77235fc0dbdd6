package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// RoutesBucket has where the data of each tenant is, without the prefix of an installation.
const RoutesBucket = "tenant_runtime"

// What a bucket is on the wire: a stream whose subjects are its keys. Nobody else writes these names down.
const (
	bucketStream  = "KV_"
	bucketSubject = "$KV."
)

// BucketStream is the stream below a bucket.
func BucketStream(bucket string) string { return bucketStream + bucket }

// BucketSubject is the subject of a key in the stream of its bucket. The key may have wildcards.
func BucketSubject(bucket, key string) string { return bucketSubject + bucket + "." + key }

// BucketKey is the bucket and the key of a subject, or false when it is no key's.
func BucketKey(subject string) (bucket, key string, ok bool) {
	rest, is := strings.CutPrefix(subject, bucketSubject)
	bucket, key, found := strings.Cut(rest, ".")
	return bucket, key, is && found && bucket != "" && key != ""
}

// BucketOf is the bucket above a stream, or false when there is none.
func BucketOf(stream string) (bucket string, ok bool) { return strings.CutPrefix(stream, bucketStream) }

// EnsureBucket makes a bucket beside those of the plan where it is missing, as they are, and with lives of messages; life is that of all, if not 0. One that exists stays as it is.
func EnsureBucket(ctx context.Context, js jetstream.JetStream, bucket, doc string, life time.Duration, replicas int) error {
	_, err := js.Stream(ctx, BucketStream(bucket))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		want := bucketConfig(bucket, doc, max(replicas, 1))
		want.AllowMsgTTL, want.MaxAge, want.Duplicates = true, life, min(want.Duplicates, cmp.Or(life, want.Duplicates)) // no id is known for longer than its message
		_, err = create(ctx, js, want)
	}
	if err != nil {
		return fmt.Errorf("streams: cannot make the bucket %s: %w", bucket, err)
	}
	return nil
}
