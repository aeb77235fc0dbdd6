package platform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/providers/platform/storage"
	"github.com/bcc94042/instar/providers/platform/storage/gateway"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	front "github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/streams"
)

// StorageKeysBucket has the keys of releases to their tenants' buckets, by bucket, without the prefix of the installation.
const StorageKeysBucket = "storage_keys"

// Of clients of S3: requests that are answered at a time, in all and of one bucket, and connections. Each request that writes has up to 4 MiB on their way to the store.
var (
	requests    = limits.Bound{All: 128, Each: 32}
	connections = limits.Bound{All: 1024}
)

// drain is how long requests of clients of S3 go on when the server stops: they try again, those of the proxy may not.
const drain = 3 * time.Second

// handed are the keys of the gateway to the buckets of an installation, and where releases reach it; nowhere where it is not served.
type handed struct {
	keys             *gateway.Keys
	prefix, endpoint string
}

func (k *handed) Give(ctx context.Context, tenant, release, owner string, fence uint64) (credentials, endpoint string, err error) {
	if k.endpoint == "" {
		return "", "", nil
	}
	key, err := k.keys.Give(ctx, k.prefix+tenant, release, owner, fence)
	return key.Credentials(), k.endpoint, err
}

func (k *handed) Revoke(ctx context.Context, tenant, release, owner string, fence uint64) error {
	return k.keys.Revoke(ctx, k.prefix+tenant, release, owner, fence)
}

func (k *handed) Known(ctx context.Context, tenant string) (all []string, err error) {
	keys, err := k.keys.Known(ctx, k.prefix+tenant)
	for _, key := range keys {
		all = append(all, key.Credentials())
	}
	return all, err
}

// openGateway serves the buckets in JetStream to clients of S3, and gives the keys to them, or ends those that were given where it is not served any more; nil where buckets are elsewhere.
func openGateway(ctx context.Context, h *server.Host, seal *secret.Keys) (platform.Keys, error) {
	if h.Config.Platform.Storage.Kind != config.StorageJetStream {
		return nil, nil
	}
	nc, js, err := h.Connect("storage")
	if err != nil {
		return nil, err
	}
	bucket := h.Deps.Names.Bucket(StorageKeysBucket)
	if err := streams.EnsureBucket(ctx, js, bucket, "Keys of releases to their tenants' buckets, sealed", 0, h.Replicas); err != nil {
		return nil, err
	}
	rows, err := kv.Open(ctx, js, bucket, kv.JSON[gateway.Row]())
	if err != nil {
		return nil, err
	}
	parts, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(10*time.Second)) // a part that is not stored by then is written by nobody
	if err != nil {
		return nil, err
	}
	keys := &gateway.Keys{Rows: rows, Seal: seal, Stores: &storage.ObjectStores{JS: parts}}
	g := gateway.New(keys, limits.NewPool("storage-requests", requests).Take, h.Log)
	all := &handed{keys: keys, prefix: h.Deps.Names.Bucket("")}
	if why := unreached(&h.Config.Platform); why != "" {
		h.Log.Info("releases get no credentials for their buckets: " + why)
	} else if all.endpoint, err = serveGateway(ctx, h, g); err != nil {
		return nil, err
	} else {
		h.Say("Buckets of tenants: S3 at %s, for their releases", all.endpoint)
	}
	h.Go(ctx, "tidying buckets of tenants", func(ctx context.Context) error {
		for {
			if err := g.Tidy(ctx); err != nil && ctx.Err() == nil {
				h.Log.Warn("cannot tidy buckets of tenants; it is tried again in an hour", "error", err)
			}
			if !wait.For(ctx, time.Hour) {
				return nil
			}
		}
	})
	return all, nil
}

// unreached is why releases could not reach the gateway; empty where they can.
func unreached(p *config.Platform) string {
	s := p.Storage
	host, _, _ := net.SplitHostPort(s.Listen) // was checked
	ip, err := netip.ParseAddr(host)
	switch {
	case s.Listen == "":
		return "platform.storage.listen is empty"
	case s.Endpoint != config.DefaultStore:
		return ""
	case host == "" || err == nil && ip.IsUnspecified():
		return "platform.storage.listen is " + s.Listen + ", which is no address to reach it at: set platform.storage.endpoint, too"
	case config.Loopback(s.Listen) && p.Instances.Kind != config.KindProcess && p.Instances.Kind != config.KindSystemd:
		return "those of the kind " + p.Instances.Kind + " do not reach platform.storage.listen, " + s.Listen + ": set one that they reach, or platform.storage.endpoint, if they do"
	}
	return ""
}

// serveGateway serves until the server stops, and is the URL under which releases reach it. Beyond loopback it has the certificate of the API.
func serveGateway(ctx context.Context, h *server.Host, g http.Handler) (string, error) {
	listen, endpoint := h.Config.Platform.Storage.Listen, h.Config.Platform.Storage.Endpoint
	l, err := front.Listen(h, listen)
	if err != nil {
		return "", fmt.Errorf("platform.storage.listen: %w: set another address, or none (\"\")", err)
	}
	s, scheme := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}, "http"
	if t := h.Config.HTTP.TLS; !config.Loopback(listen) && t.Cert != "" {
		if s.TLSConfig, err = server.ListenerTLS(config.TLS{Cert: t.Cert, Key: t.Key}, h.Log); err != nil {
			return "", errors.Join(fmt.Errorf("platform.storage.listen: %w", err), l.Close())
		}
		scheme, s.Protocols = "https", &http.Protocols{}
		s.Protocols.SetHTTP1(true) // each request has a connection, and so deadlines of its own
	}
	front.Serve(ctx, h, limits.Listen(l, limits.NewPool("storage-connections", connections), nil), nil, "the gateway to buckets", s, drain)
	if endpoint == config.DefaultStore {
		host, _, _ := net.SplitHostPort(listen) // was checked; a certificate may have it
		_, port, err := net.SplitHostPort(l.Addr().String())
		return scheme + "://" + net.JoinHostPort(host, port), err
	}
	return endpoint, nil
}
