//go:build linux

package platform_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/platform/storage/gateway"
	"github.com/bcc94042/instar/server/platform"
)

// store is a client of S3 with the key that a release has got.
func (w *world) store(release string) *minio.Client {
	w.T.Helper()
	file := filepath.Join(w.Config.Data, "platform", "releases", "default."+release, "home", ".secrets", "aws_shared_credentials")
	text, err := os.ReadFile(file)
	require.NoError(w.T, err)
	kept := filepath.Join(w.T.TempDir(), "credentials") // also when the release has gone
	require.NoError(w.T, os.WriteFile(kept, text, 0o600))
	c, err := minio.New(w.Config.Platform.Storage.Listen, &minio.Options{Creds: credentials.NewFileAWSCredentials(kept, ""), MaxRetries: 1, BucketLookup: minio.BucketLookupPath})
	require.NoError(w.T, err)
	return c
}

// opens asks for the bucket of a tenant, and is what the gateway says where it refuses that.
func (w *world) opens(c *minio.Client, tenant string) (code string) {
	w.T.Helper()
	_, err := c.PutObject(w.T.Context(), "tenant-"+tenant, "logo", strings.NewReader("an image"), 8, minio.PutObjectOptions{})
	if err == nil {
		return ""
	}
	return minio.ToErrorResponse(err).Code
}

// keys are the releases whose keys are stored.
func (w *world) keys(js jetstream.JetStream) (releases []string) {
	w.T.Helper()
	rows, err := kv.Open(w.T.Context(), js, platform.StorageKeysBucket, kv.JSON[gateway.Row]())
	require.NoError(w.T, err)
	for e, err := range rows.List(w.T.Context(), ">") {
		require.NoError(w.T, err)
		releases = slices.AppendSeq(releases, maps.Keys(e.Value.Keys))
	}
	return releases
}
