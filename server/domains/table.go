package domains

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/domain/proxy"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams"
)

// Buckets of the provider, without the prefix of the installation.
const (
	RoutesBucket       = "domain_routes"
	CertificatesBucket = "certificates"
)

func makeBucket(ctx context.Context, h *server.Host, name, doc string) (string, error) {
	bucket := h.Deps.Names.Bucket(name)
	return bucket, streams.EnsureBucket(ctx, h.Deps.JS, bucket, doc, h.Replicas)
}

// table is the bucket of rows, by name. Rows of names that nobody has stay: an old task must not claim them again.
type table struct {
	rows *kv.Bucket[domain.Row]

	mu     sync.Mutex
	owners map[string]string // as this node has heard of them, by name
}

func openTable(ctx context.Context, h *server.Host) (*table, error) {
	name, err := makeBucket(ctx, h, RoutesBucket, "Who has a domain name, and where its requests go")
	if err != nil {
		return nil, err
	}
	rows, err := kv.Open(ctx, h.Deps.JS, name, kv.JSON[domain.Row]())
	return &table{rows: rows}, err
}

// Row is the row as the leader has it.
func (t *table) Row(ctx context.Context, host string) (domain.Row, error) {
	e, err := t.rows.Get(ctx, host)
	if errors.Is(err, kv.ErrNotFound) {
		return domain.Row{}, nil
	}
	return e.Value, err
}

// Change replaces a row by what change makes of it.
func (t *table) Change(ctx context.Context, host string, change func(domain.Row) (domain.Row, error)) error {
	for {
		e, err := t.rows.Get(ctx, host)
		if err != nil && !errors.Is(err, kv.ErrNotFound) {
			return err
		}
		next, err := change(e.Value)
		if err != nil {
			return err
		}
		if _, err = t.rows.Put(ctx, host, next, e.Revision); !errors.Is(err, kv.ErrConflict) {
			return err
		}
	}
}

// follow keeps the proxy's routes as the bucket has them, until ctx ends, and drops names that have none any more. A bucket that was made anew is read from
// its beginning, while the proxy goes on with what it has.
func (t *table) follow(ctx context.Context, set func([]proxy.Route), drop func(host string)) {
	served := map[string]bool{}
	for {
		rows, synced := map[string]domain.Row{}, false
		for e, err := range t.rows.Watch(ctx, "", 0) {
			switch {
			case err != nil: // of a value that cannot be read, this node has what it had
				continue
			case e.Synced:
				synced = true
			case e.Deleted:
				delete(rows, e.Key)
			default:
				rows[e.Key] = e.Value
			}
			if synced {
				t.heard(rows)
				set(routesOf(rows))
				for host := range served {
					if rows[host].Route == nil {
						delete(served, host)
						drop(host)
					}
				}
				for host, r := range rows {
					if r.Route != nil {
						served[host] = true
					}
				}
			}
		}
		if !wait.For(ctx, time.Second) {
			return
		}
	}
}

func (t *table) heard(rows map[string]domain.Row) {
	owners := make(map[string]string, len(rows))
	for host, r := range rows {
		if r.Owner != "" {
			owners[host] = r.Owner
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.owners = owners
}

// owner is the key of the entity that has a name, as far as this node has heard.
func (t *table) owner(host string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.owners[host]
}

// routesOf are the proxy's routes.
func routesOf(rows map[string]domain.Row) []proxy.Route {
	list := make([]proxy.Route, 0, len(rows))
	for host, row := range rows {
		r := row.Route
		if r == nil {
			continue
		}
		route := proxy.Route{Host: host, Health: proxy.Health{Path: r.Health.Path, Every: time.Duration(r.Health.EverySeconds) * time.Second, Within: time.Duration(r.Health.WithinSeconds) * time.Second}}
		all := 0
		for _, b := range r.Targets {
			all += b.Weight
		}
		for _, b := range r.Targets {
			if all == 0 {
				b.Weight = 1
			}
			route.Backends = append(route.Backends, proxy.Backend{Address: b.Address, Weight: b.Weight})
		}
		list = append(list, route)
	}
	return list
}
