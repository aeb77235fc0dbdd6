package domains

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/kv/index"
	machine "github.com/bcc94042/instar/machines/domain"
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
	return bucket, streams.EnsureBucket(ctx, h.Deps.JS, bucket, doc, 0, h.Replicas)
}

// table is the bucket of rows, by name. Rows of names that nobody has stay: an old task must not claim them again.
type table struct {
	rows *kv.Bucket[domain.Row]

	synced chan struct{} // is closed when this node knows all routes
}

func openTable(ctx context.Context, h *server.Host) (*table, error) {
	name, err := makeBucket(ctx, h, RoutesBucket, "Who has a domain name, and where its requests go")
	if err != nil {
		return nil, err
	}
	rows, err := kv.Open(ctx, h.Deps.JS, name, kv.JSON[domain.Row]())
	return &table{rows: rows, synced: make(chan struct{})}, err
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
func (t *table) follow(ctx context.Context, set func([]proxy.Route), drop func(host string), log *slog.Logger) {
	served, known := map[string]bool{}, sync.OnceFunc(func() { close(t.synced) })
	for {
		rows, synced := map[string]domain.Row{}, false
		for e, err := range t.rows.Watch(ctx, "", 0) {
			before := rows[e.Key].Route
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
			if synced && (e.Synced || !reflect.DeepEqual(before, rows[e.Key].Route)) { // a row changes more often than its route
				set(routesOf(rows))
				known()
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
		log.Warn("the routes of domains are followed anew")
	}
}

// orphans gives names free whose domain is gone: a backup has the values of domains and the routes of different moments.
func (t *table) orphans(ctx context.Context, domains *index.Index) error {
	select {
	case <-domains.Ready():
	default:
		return nil // the next time
	}
	for e, err := range t.rows.List(ctx, "") {
		if err != nil {
			return err
		}
		owner := e.Value.Owner
		item, known := domains.Get(owner)
		if !e.Value.OfDomain() || known && item.State != machine.Removed || !known && !domains.Lacks(owner) {
			continue
		}
		err := t.Change(ctx, e.Key, func(r domain.Row) (domain.Row, error) {
			if r.Owner != owner || r.Fence != e.Value.Fence {
				return r, nil
			}
			return r.Free(owner, r.Fence), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
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
			route.Backends = append(route.Backends, proxy.Backend{Address: b.Address, Weight: b.Weight, OwnHost: b.OwnHost})
		}
		list = append(list, route)
	}
	return list
}
