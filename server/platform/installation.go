package platform

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

// InstallationBucket has what tells this installation from others that use the same store or engine, without the prefix of the installation.
const InstallationBucket = "installation"

// installation is the id of an installation, in lower case letters and digits: made once, the same for all its servers, and for what is restored of it.
func installation(ctx context.Context, js jetstream.JetStream, bucket string, replicas int) (string, error) {
	if err := streams.EnsureBucket(ctx, js, bucket, "What tells this installation from others", 0, replicas); err != nil {
		return "", err
	}
	ids, err := kv.Open(ctx, js, bucket, kv.JSON[string]())
	if err != nil {
		return "", err
	}
	if _, err := ids.Put(ctx, "id", strings.ToLower(rand.Text()), 0); err != nil && !errors.Is(err, kv.ErrConflict) {
		return "", err
	}
	id, err := ids.Get(ctx, "id") // that of who was first
	return id.Value, err
}
