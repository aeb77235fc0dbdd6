package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/s3"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// openBuckets is where the buckets of tenants are, for the installation with this id.
func openBuckets(h *server.Host, js jetstream.JetStream, id string) (storage.Provider, error) {
	c, prefix := h.Config.Platform.Storage, h.Deps.Names.Bucket("")
	if c.Kind == config.StorageJetStream {
		return &storage.ObjectStores{JS: js, Replicas: h.Replicas, Prefix: prefix}, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("platform.storage.endpoint: %w", err)
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{}})
	if c.Credentials != "" {
		keys = credentials.NewFileAWSCredentials(c.Credentials, "")
	}
	transport, err := s3.Transport(u.Scheme == "https", 0)
	if err != nil {
		return nil, fmt.Errorf("platform.storage: %w", err)
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: keys, Secure: u.Scheme == "https", Region: c.Region, MaxRetries: 3, Transport: transport})
	if err != nil {
		return nil, fmt.Errorf("platform.storage: cannot use %s: %w", c.Endpoint, err)
	}
	return &storage.S3{Client: client, Installation: id, Region: c.Region, Shared: c.Bucket, Prefix: strings.ReplaceAll(prefix, "_", "-")}, nil
}

// secrets are what a release needs to enter its database, and with a directory of credentials also its bucket, in the form that clients of S3 read.
func secrets(dir string, address func(enterprise string, has *database.Allocated) (string, error)) func(string, *database.Allocated) (map[string]string, error) {
	return func(enterprise string, has *database.Allocated) (map[string]string, error) {
		all, unknown := map[string]string{}, error(nil)
		if has != nil {
			if at, err := address(enterprise, has); err == nil {
				all["DATABASE_URL"] = at
			} else {
				unknown = err // the others are to be hidden all the same
			}
		}
		if dir == "" {
			return all, unknown
		}
		path := filepath.Join(dir, filepath.Base(enterprise))
		text, err := os.ReadFile(path) // #nosec G304 -- a name within the directory of the configuration
		switch {
		case errors.Is(err, fs.ErrNotExist), filepath.Base(enterprise) != enterprise, strings.HasPrefix(enterprise, "."):
			return all, providers.Errorf(providers.Invalid, "there are no credentials for the bucket of %s: put them into %s", enterprise, path)
		case err != nil:
			return all, providers.Errorf(providers.Unavailable, "cannot read the credentials for the bucket of %s: %v", enterprise, err)
		case strings.TrimSpace(string(text)) == "":
			return all, providers.Errorf(providers.Invalid, "%s is empty: put the credentials for the bucket of %s into it", path, enterprise)
		}
		all["AWS_SHARED_CREDENTIALS"] = string(text)
		return all, unknown
	}
}
