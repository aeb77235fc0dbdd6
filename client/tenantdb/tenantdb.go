package tenantdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/streams"
)

// ErrClosed: the tenant was deprovisioned, or has a database of its own and is not active.
var ErrClosed = errors.New("the tenant is closed")

// Buckets, without the prefix of an installation.
const (
	RoutesBucket = streams.RoutesBucket // where each tenant's data is, by tenant
	SeenBucket   = "tenant_resolvers"   // which epoch who has seen, by tenant and resolver; an entry lives for [SeenLife]
)

// SeenLife is how long an acknowledgement lives. It is renewed three times within that.
const SeenLife = 15 * time.Second

// untaken is the code of an acknowledgement that no switch waits for. With another one it was not stored for now, and a switch waits.
const untaken = 400

// idleAfter is how long a tenant is acknowledged after it was acquired last: a process that has served thousands once does not say so for ever.
const idleAfter = time.Minute

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
	JetStream jetstream.JetStream                    // a user of the role resolve has it under the prefix $JS.INSTAR.API
	Prefix    string                                 // of the installation, when it has one
	Keys      *secret.Keys                           // of the keyset that the server seals with
	Shared    *pgxpool.Config                        // of the database that tenants share, as this application enters it
	Log       *slog.Logger                           // warns, once a minute at most, where the server refuses acknowledgements; nil says nothing
	Configure func(tenant string, c *pgxpool.Config) // changes what leads into a tenant's own database, before it is used; nil changes nothing. What it begins with is Shared with the host, database and credentials of the tenant
}

// DB has the pools of tenants. It is safe for concurrent use.
type DB struct {
	o      Options
	id     string
	names  streams.Names
	shared *pgxpool.Pool
	follow *follower

	mu     sync.Mutex
	routes map[string]Route
	pools  map[string]*tenant
	gone   map[string]gone // tenants that have no pool any more, and of which the server may still know what was acknowledged last

	saying map[string]*saying // by tenant of which an epoch is being acknowledged

	refused atomic.Uint64
	warned  time.Time

	stop  context.CancelFunc
	tasks sync.WaitGroup
}

// tenant is what is given out of one: a pool of its own, or the shared one.
type tenant struct {
	epoch int64
	pool  *pgxpool.Pool
	used  time.Time // when it was acquired last
	idle  bool      // it is acknowledged no more until it is acquired again
}

// gone is a tenant whose acknowledgement outlives its pool: a switch waits for it, so a new epoch is acknowledged until then.
type gone struct {
	epoch int64     // that was acknowledged
	at    time.Time // not before that
}

// saying is held while an epoch of a tenant is acknowledged.
type saying struct {
	sync.Mutex
	waiting int // for it, and who has it
}

// Open follows where tenants are, and returns when it knows. It fails when the server keeps no such bucket.
func Open(ctx context.Context, o Options) (*DB, error) {
	d := &DB{o: o, id: nuid.Next(), names: streams.Names{Prefix: o.Prefix}, routes: map[string]Route{}, pools: map[string]*tenant{}, gone: map[string]gone{}, saying: map[string]*saying{}}
	if d.o.Log == nil {
		d.o.Log = slog.New(slog.DiscardHandler)
	}
	f := &follower{js: o.JetStream, name: streams.BucketStream(d.names.Bucket(RoutesBucket)), take: d.take}
	if err := f.open(ctx, d.names.Moved("*")); err != nil {
		return nil, fmt.Errorf("cannot read where tenants are: %w", err)
	}
	var err error
	if d.shared, err = pgxpool.NewWithConfig(ctx, o.Shared); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot use the shared database: %w", err), f.told.Unsubscribe())
	}
	d.follow = f
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.tasks.Go(func() { f.run(run) })
	d.tasks.Go(func() { d.renew(run) })
	return d, nil
}

// Looked is when all of what the servers say of tenants was known here last. While NATS answers, that is at most about 5 s ago; from 10 s on, a tenant may have been moved without waiting for this process, and what it reads be old.
func (d *DB) Looked() time.Time { return time.Unix(0, d.follow.looked.Load()) }

// Refused is how many acknowledgements the servers have refused, as of more resolvers than they take. A switch of such a tenant does not wait for this process: for some seconds it may read old rows, while its writes are refused.
func (d *DB) Refused() uint64 { return d.refused.Load() }

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

// Acquire returns a connection to where the data of a tenant is, named as its rows do, in upper case where they do: one that is not known is in the shared database. It is to be released soon: what is acquired stays where it is.
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
		if t.used = time.Now(); t.idle {
			t.idle = false
			d.tasks.Go(func() { d.acknowledge(name) })
		}
		return t, nil
	}
	r := d.routes[name]
	t := &tenant{epoch: r.Epoch, pool: d.shared, used: time.Now()}
	switch {
	case closed(&r):
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
	delete(d.gone, name)
	d.tasks.Go(func() { d.acknowledge(name) })
	return t, nil
}

// closed reports whether nobody gets a connection. What else the application says of a tenant in tenant_runtime is its own to heed: one that was never moved is given the shared database whatever it says.
func closed(r *Route) bool {
	return r.Status == "deprovisioned" || r.DatabaseName != "" && r.Status != "" && r.Status != "active"
}

func (d *DB) config(name string, r *Route) (*pgxpool.Config, error) {
	c, err := d.o.Keys.Unseal(r.Credentials, name, r.DatabaseName)
	if err != nil {
		return nil, err
	}
	config := d.o.Shared.Copy()
	if err := pg.Lead(config.ConnConfig, r.DatabaseHost); err != nil {
		return nil, fmt.Errorf("cannot lead the configuration of the shared database to that of tenant %s: %w", name, err)
	}
	config.ConnConfig.Database, config.ConnConfig.User, config.ConnConfig.Password = r.DatabaseName, c.User, c.Password
	if d.o.Configure != nil {
		d.o.Configure(name, config)
	}
	return config, nil
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
	switch g, left := d.gone[name]; {
	case t != nil && t.epoch < r.Epoch:
		d.leave(name, t, time.Now())
	case t != nil, !left, g.epoch >= r.Epoch:
		return
	}
	d.tasks.Go(func() { d.acknowledge(name) })
}

// leave gives a tenant out no more, under the lock.
func (d *DB) leave(name string, t *tenant, now time.Time) {
	delete(d.pools, name)
	d.gone[name] = gone{t.epoch, now}
	if t.pool != d.shared {
		d.tasks.Go(t.pool.Close) // which waits for what was acquired
	}
}

// acknowledge says under which epoch connections of a tenant are given out, one after the other, so that an earlier one is never said last. What is lost is said again by renew.
// No server takes, nor moves, a name that is no token of a subject.
func (d *DB) acknowledge(name string) {
	if streams.CheckToken(name) != nil {
		return
	}
	defer d.say(name)()
	d.mu.Lock()
	epoch := d.routes[name].Epoch
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), SeenLife/3)
	defer cancel()
	answer, err := d.o.JetStream.Conn().RequestWithContext(ctx, d.names.Seen(name, d.id), strconv.AppendInt(nil, epoch, 10))
	if err != nil {
		return
	}
	var said struct {
		Error *struct {
			Code        int
			Description string
		}
	}
	switch err := json.Unmarshal(answer.Data, &said); {
	case err != nil, said.Error != nil && said.Error.Code != untaken:
		return
	case said.Error != nil:
		d.warn(name, said.Error.Description)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if g, left := d.gone[name]; left {
		d.gone[name] = gone{max(g.epoch, epoch), time.Now()}
	}
}

// warn counts a refusal, and logs one a minute.
func (d *DB) warn(name, why string) {
	count := d.refused.Add(1)
	d.mu.Lock()
	late := time.Since(d.warned) >= time.Minute
	if late {
		d.warned = time.Now()
	}
	d.mu.Unlock()
	if late {
		d.o.Log.Warn("the server does not take where this process has seen tenants: a switch does not wait for it", "tenant", name, "error", why, "refused", count)
	}
}

// say waits for who acknowledges an epoch of the tenant, and has others wait until done.
func (d *DB) say(name string) (done func()) {
	d.mu.Lock()
	s := d.saying[name]
	if s == nil {
		s = &saying{}
		d.saying[name] = s
	}
	s.waiting++
	d.mu.Unlock()
	s.Lock()
	return func() {
		s.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		if s.waiting--; s.waiting == 0 {
			delete(d.saying, name)
		}
	}
}

// renew repeats the acknowledgements of the tenants that are in use, and those that were lost.
func (d *DB) renew(ctx context.Context) {
	tick := time.NewTicker(SeenLife / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.once(time.Now())
		}
	}
}

func (d *DB) once(now time.Time) {
	var all errgroup.Group
	all.SetLimit(64)
	for _, name := range d.inUse(now) {
		all.Go(func() error { d.acknowledge(name); return nil })
	}
	_ = all.Wait()
}

// inUse are the tenants that were acquired within a minute, or are still, and those whose new epoch was not acknowledged. The others are forgotten; one with a database of its own when its pool has no connection any more, as by its MaxConnIdleTime.
func (d *DB) inUse(now time.Time) (names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, t := range d.pools {
		own := t.pool != d.shared
		switch {
		case now.Sub(t.used) < idleAfter, own && t.pool.Stat().AcquiredConns() > 0:
			names = append(names, name)
		case own && t.pool.Stat().TotalConns() > 0:
			t.idle = true
		default:
			d.leave(name, t, now)
		}
	}
	for name, g := range d.gone {
		switch {
		case now.Sub(g.at) >= SeenLife:
			delete(d.gone, name)
		case g.epoch < d.routes[name].Epoch: // what was said of it was lost
			names = append(names, name)
		}
	}
	return names
}
