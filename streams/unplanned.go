package streams

// Buckets of the installation that a plan does not have, because another process has made them, with machines of its own. Package backup asks for them: it would leave them out.

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// What the buckets of machines say of themselves. A process that does not have the machine knows them by it, also those that were made before: so it stays as it is.
const (
	entitiesDoc = "Entities of a machine, by key"
	viewDoc     = "A read model built from events"
)

// OwnBucket reports whether a stream has the name of a bucket of the installation. Among are the names of all streams of the account: what begins with the prefix of another
// installation there is a bucket of that one.
func (n Names) OwnBucket(stream string, among []string) bool {
	bucket, ok := BucketOf(stream)
	first, _, several := strings.Cut(bucket, "_") // no prefix has one
	if own := n.Bucket(""); own != "" {
		return ok && strings.HasPrefix(bucket, own)
	}
	return ok && !(several && slices.Contains(among, Names{Prefix: first}.Stream(CommandStream)))
}

// IsMachines reports whether a stream is the bucket of the entities or of a view of some machine, of whatever installation: neither one that a user has made, nor a copy.
func IsMachines(c jetstream.StreamConfig) bool {
	bucket, ok := BucketOf(c.Name)
	return ok && (c.Description == entitiesDoc || c.Description == viewDoc) && slices.Equal(c.Subjects, []string{BucketSubject(bucket, ">")})
}
