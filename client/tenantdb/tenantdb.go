package tenantdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/streams"
)

// ErrClosed: the tenant was deprovisioned, or is not active.
var ErrClosed = errors.New("the tenant is closed")

// Buckets, without the prefix of an installation.
const (
	RoutesBucket = "tenant_runtime"   // where each tenant's data is, by tenant
	SeenBucket   = "tenant_resolvers" // which epoch who has seen, by tenant and resolver; an entry lives for [SeenLife]
)

// SeenLife is how long an acknowledgement lives. It is renewed three times within that.
const SeenLife = 15 * time.Second

// Route is where a tenant's data is.
type Route struct {
	IsolationMode string `json:"isolationMode"` // shared, dedicated_db
	DatabaseID    string `json:"databaseId,omitempty"`
	DatabaseHost  string `json:"databaseHost,omitempty"`
	DatabaseName  string `json:"databaseName,omitempty"`
	Status        string `json:"status"`
	Epoch         int64  `json:"epoch"`
	Credentials   string `json:"credentials,omitempty"` // sealed
}

// Options say what connections are made of.
type Options struct {
	JetStream jetstream.JetStream
	Prefix    string          // of the installation, when it has one
	Keys      *secret.Keys    // of the keyset that the server seals with
	Shared    *pgxpool.Config // of the database that tenants share, as this application enters it
	Configure func(tenant string, c *pgxpool.Config)
}

// DB has the pools of tenants. It is safe for concurrent use.
type DB struct {
	o      Options
	id     string
	seen   jetstream.KeyValue
	shared *pgxpool.Pool

	mu     sync.Mutex
	routes map[string]Route
	pools  map[string]*tenant

	saying sync.Mutex // held while an epoch is acknowledged

	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// tenant is what is given out of one: a pool of its own, or the shared one.
type tenant struct {
	epoch int64
	pool  *pgxpool.Pool
}

func bucket(prefix, name string) string {
	if prefix == "" || prefix == "instar" {
		return name
	}
	return prefix + "_" + name
}

// Open follows where tenants are, and returns when it knows. It fails when the server keeps no such bucket.
func Open(ctx context.Context, o Options) (*DB, error) {
	routes, err := o.JetStream.KeyValue(ctx, bucket(o.Prefix, RoutesBucket))
	if err != nil {
		return nil, fmt.Errorf("cannot read where tenants are: %w", err)
	}
	d := &DB{o: o, id: nuid.Next(), routes: map[string]Route{}, pools: map[string]*tenant{}}
	if d.seen, err = o.JetStream.KeyValue(ctx, bucket(o.Prefix, SeenBucket)); err != nil {
		return nil, fmt.Errorf("cannot acknowledge where tenants are: %w", err)
	}
	if d.shared, err = pgxpool.NewWithConfig(ctx, o.Shared); err != nil {
		return nil, fmt.Errorf("cannot use the shared database: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	lacks, err := d.lists(ctx, routes)
	var watch jetstream.KeyWatcher
	if err == nil {
		watch, err = routes.WatchAll(run)
	}
	if err != nil {
		stop()
		d.shared.Close()
		return nil, fmt.Errorf("cannot follow where tenants are: %w", err)
	}
	known := make(chan error, 1)
	d.tasks.Go(func() { d.follow(run, routes, watch, lacks, known) })
	d.tasks.Go(func() { d.renew(run) })
	select {
	case err = <-known:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot read where tenants are: %w", err), d.Close())
	}
	return d, nil
}

// Close ends all pools, and waits until what was acquired has been released.
func (d *DB) Close() error {
	d.stop()
	d.mu.Lock()
	pools := d.pools
	d.pools = nil
	d.mu.Unlock()
	for _, t := range pools {
		if t.pool != d.shared {
			t.pool.Close()
		}
	}
	d.tasks.Wait()
	d.shared.Close()
	return nil
}

// Acquire returns a connection to where the tenant's data is. It is to be released soon: what is acquired stays where it is.
func (d *DB) Acquire(ctx context.Context, name string) (*pgxpool.Conn, error) {
	for {
		t, err := d.of(ctx, name)
		if err != nil {
			return nil, err
		}
		conn, err := t.pool.Acquire(ctx)
		if err == nil {
			return conn, nil
		}
		d.mu.Lock()
		current := d.pools[name] == t
		d.mu.Unlock()
		if current || ctx.Err() != nil { // else the pool was closed for a new epoch
			return nil, fmt.Errorf("cannot connect to the database of tenant %s: %w", name, err)
		}
	}
}

// of is the pool of a tenant under its present epoch.
func (d *DB) of(ctx context.Context, name string) (*tenant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pools == nil {
		return nil, errors.New("the pools of tenants are closed")
	}
	if t := d.pools[name]; t != nil {
		return t, nil
	}
	r := d.routes[name]
	t := &tenant{epoch: r.Epoch, pool: d.shared}
	switch {
	case r.Status != "" && r.Status != "active":
		return nil, fmt.Errorf("tenant %s: %w (%s)", name, ErrClosed, r.Status)
	case r.DatabaseName != "":
		config, err := d.config(name, &r)
		if err != nil {
			return nil, err
		}
		if t.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
			return nil, fmt.Errorf("cannot make the pool of tenant %s: %w", name, err)
		}
	}
	d.pools[name] = t
	d.tasks.Go(func() { d.acknowledge(name) })
	return t, nil
}

func (d *DB) config(name string, r *Route) (*pgxpool.Config, error) {
	c, err := d.o.Keys.Unseal(r.Credentials, name, r.DatabaseName)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(r.DatabaseHost)
	if err != nil {
		return nil, fmt.Errorf("the database of tenant %s has no address: %w", name, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("the database of tenant %s has no address: %w", name, err)
	}
	config := d.o.Shared.Copy()
	config.ConnConfig.Host, config.ConnConfig.Port, config.ConnConfig.Fallbacks = host, uint16(number), nil
	config.ConnConfig.Database, config.ConnConfig.User, config.ConnConfig.Password = r.DatabaseName, c.User, c.Password
	if config.ConnConfig.TLSConfig != nil {
		config.ConnConfig.TLSConfig.ServerName = host
	}
	if d.o.Configure != nil {
		d.o.Configure(name, config)
	}
	return config, nil
}

// missed is after how long without a route it is looked whether those that are awaited are still there.
const missed = 2 * time.Second

// lists gives the keys that the bucket has.
func (d *DB) lists(ctx context.Context, routes jetstream.KeyValue) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s, err := d.o.JetStream.Stream(ctx, streams.BucketStream(routes.Bucket()))
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(streams.BucketSubject(routes.Bucket(), ">")))
	if err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for subject := range info.State.Subjects {
		if _, key, ok := streams.BucketKey(subject); ok {
			keys[key] = true
		}
	}
	return keys, nil
}

// follow takes what the server tells, until ctx ends. All is known when it has none of the keys that the bucket had to lack: a watch says earlier that it has given all, while
// others write, because the server takes a value that is replaced from what is to come before it adds the new one. A tenant that is not known is taken for one of the shared database.
func (d *DB) follow(ctx context.Context, routes jetstream.KeyValue, watch jetstream.KeyWatcher, lacks map[string]bool, known chan<- error) {
	defer func() { _ = watch.Stop() }() // it may have ended
	quiet := time.NewTimer(missed)
	defer quiet.Stop()
	for told := false; ; {
		if !told && len(lacks) == 0 {
			known <- nil
			told = true
		}
		select {
		case <-ctx.Done():
			return
		case <-quiet.C:
			if told {
				continue
			}
			if has, err := d.lists(ctx, routes); err == nil {
				maps.DeleteFunc(lacks, func(key string, _ bool) bool { return !has[key] })
			}
			quiet.Reset(missed)
		case e, open := <-watch.Updates():
			switch {
			case !open:
				if !told {
					known <- errors.New("the watch has ended")
				}
				return
			case e == nil:
				continue
			case e.Operation() == jetstream.KeyValuePut:
				d.take(e.Key(), e.Value())
			}
			delete(lacks, e.Key())
			if !told {
				quiet.Reset(missed)
			}
		}
	}
}

// take changes where a tenant is. What cannot be read, of a newer server, leaves what was known.
func (d *DB) take(name string, value []byte) {
	var r Route
	if json.Unmarshal(value, &r) != nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Epoch < d.routes[name].Epoch || d.pools == nil {
		return
	}
	d.routes[name] = r
	t := d.pools[name]
	if t == nil || t.epoch >= r.Epoch {
		return
	}
	delete(d.pools, name)
	if t.pool != d.shared {
		d.tasks.Go(t.pool.Close) // which waits for what was acquired
	}
	d.tasks.Go(func() { d.acknowledge(name) })
}

// acknowledge says under which epoch connections are given out, one after the other, so that an earlier one is never said last. What is lost is said again by renew.
func (d *DB) acknowledge(name string) {
	d.saying.Lock()
	defer d.saying.Unlock()
	d.mu.Lock()
	epoch := d.routes[name].Epoch
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), SeenLife/3)
	defer cancel()
	_, _ = d.seen.Put(ctx, name+"."+d.id, strconv.AppendInt(nil, epoch, 10))
}

// renew repeats the acknowledgements of the tenants that are in use.
func (d *DB) renew(ctx context.Context) {
	tick := time.NewTicker(SeenLife / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		d.mu.Lock()
		names := slices.Collect(maps.Keys(d.pools))
		d.mu.Unlock()
		for _, name := range names {
			d.acknowledge(name)
		}
	}
}
