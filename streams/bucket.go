package streams

import "strings"

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
