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
	"github.com/bcc94042/instar/streams"
)

// StorageKeysBucket has the keys of releases to their tenants' buckets, by bucket, without the prefix of the installation.
const StorageKeysBucket = "storage_keys"

// requests are how many of clients of S3 are answered at a time, in all and of one bucket: each that writes has up to 4 MiB on their way to the store.
var requests = limits.Bound{All: 128, Each: 32}

// handed are the keys of the gateway to the buckets of an installation, and where releases reach it.
type handed struct {
	keys             *gateway.Keys
	prefix, endpoint string
}

func (k *handed) Give(ctx context.Context, tenant, release, owner string) (credentials, endpoint string, err error) {
	key, err := k.keys.Give(ctx, k.prefix+tenant, release, owner)
	return key.Credentials(), k.endpoint, err
}

func (k *handed) Revoke(ctx context.Context, tenant, release, owner string) error {
	return k.keys.Revoke(ctx, k.prefix+tenant, release, owner)
}

func (k *handed) Known(ctx context.Context, tenant string) (all []string, err error) {
	keys, err := k.keys.Known(ctx, k.prefix+tenant)
	for _, key := range keys {
		all = append(all, key.Credentials())
	}
	return all, err
}

// openGateway serves the buckets in JetStream to clients of S3, and gives the keys to them; nil where it is not to.
func openGateway(ctx context.Context, h *server.Host, seal *secret.Keys) (platform.Keys, error) {
	listen, endpoint := reached(&h.Config.Platform)
	if listen == "" {
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
	keys, room := &gateway.Keys{Rows: rows, Seal: seal}, limits.NewPool("storage-requests", requests)
	g := gateway.New(keys, &storage.ObjectStores{JS: parts}, room.Take, h.Log)
	at, err := serveGateway(ctx, h, listen, g)
	if err != nil {
		return nil, err
	}
	h.Go(ctx, "tidying buckets of tenants", func(ctx context.Context) error {
		for wait.For(ctx, time.Hour) {
			if err := g.Tidy(ctx); err != nil && ctx.Err() == nil {
				h.Log.Warn("cannot tidy buckets of tenants; it is tried again in an hour", "error", err)
			}
		}
		return nil
	})
	if endpoint == "" {
		endpoint = at
	}
	h.Say("Buckets of tenants: S3 at %s, for their releases", endpoint)
	return &handed{keys, h.Deps.Names.Bucket(""), endpoint}, nil
}

// reached is where the gateway listens, and under which URL releases reach it, empty where that is the listener's. Without a listener, or where releases of this kind could not reach it, there is no
// gateway.
func reached(p *config.Platform) (listen, endpoint string) {
	s := p.Storage
	host, _, _ := net.SplitHostPort(s.Listen) // was checked
	ip, err := netip.ParseAddr(host)
	near := p.Instances.Kind == config.KindProcess || p.Instances.Kind == config.KindSystemd
	switch {
	case s.Kind != config.StorageJetStream || s.Listen == "":
		return "", ""
	case s.Endpoint != config.DefaultStore:
		return s.Listen, s.Endpoint
	case host == "" || err == nil && ip.IsUnspecified() || config.Loopback(s.Listen) && !near:
		return "", ""
	}
	return s.Listen, ""
}

// serveGateway serves until the server stops, and is the URL of its listener. Beyond loopback it has the certificate of the API.
func serveGateway(ctx context.Context, h *server.Host, listen string, g http.Handler) (string, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", fmt.Errorf("platform.storage.listen: %w: set another address, or none (\"\")", err)
	}
	h.Listens(l.Addr().String())
	s, scheme := &http.Server{Handler: g, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}, "http"
	if t := h.Config.HTTP.TLS; !config.Loopback(listen) && t.Cert != "" {
		if s.TLSConfig, err = server.ListenerTLS(config.TLS{Cert: t.Cert, Key: t.Key}, h.Log); err != nil {
			return "", errors.Join(fmt.Errorf("platform.storage.listen: %w", err), l.Close())
		}
		scheme = "https"
	}
	h.OnStop("the gateway to buckets", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			return s.Close()
		}
		return nil
	})
	h.Go(ctx, "the gateway to buckets", func(context.Context) error {
		serve := s.Serve
		if s.TLSConfig != nil {
			serve = func(l net.Listener) error { return s.ServeTLS(l, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("the gateway to buckets: %w", err)
		}
		return nil
	})
	return scheme + "://" + l.Addr().String(), nil
}
