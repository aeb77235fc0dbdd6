package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams"
)

// mirror tells applications where tenants are: it keeps a bucket of what tenant_runtime says, and waits for those who resolve tenants by it.
// The shared database has the truth; what the bucket has lost is told again.
type mirror struct {
	log      *slog.Logger
	nc       *nats.Conn
	names    streams.Names
	routes   jetstream.KeyValue
	told     *kv.Bucket[tenantdb.Route] // the same, to read all of them
	seen     *kv.Bucket[int64]          // epochs, by tenant and resolver
	patience time.Duration              // with a resolver that lives and does not acknowledge, and with a bucket that does not answer
	grace    time.Duration              // after a silence of all servers, until those who live have been heard

	mu       sync.Mutex
	heard    time.Time // when acknowledgements could be heard and stored last
	unstored time.Time // when one could not be stored last
	whole    time.Time // when all who live have been heard since a silence
	known    resolvers
	warned   time.Time // when it was logged last that an acknowledgement was refused
}

func newMirror(ctx context.Context, h *server.Host) (*mirror, error) {
	m := &mirror{log: h.Log, nc: h.Deps.NC, names: h.Deps.Names, patience: time.Minute, grace: tenantdb.SeenLife}
	routes, seen := h.Deps.Names.Bucket(tenantdb.RoutesBucket), h.Deps.Names.Bucket(tenantdb.SeenBucket)
	err := streams.EnsureBucket(ctx, h.Deps.JS, routes, "Where the data of each tenant is, as the shared database says", 0, h.Replicas)
	if err != nil {
		return nil, err
	}
	if err := streams.EnsureBucket(ctx, h.Deps.JS, seen, "Which epoch of a tenant a resolver has seen", tenantdb.SeenLife, h.Replicas); err != nil {
		return nil, err
	}
	if m.routes, err = h.Deps.JS.KeyValue(ctx, routes); err != nil {
		return nil, fmt.Errorf("cannot open the bucket %s: %w", routes, err)
	}
	if m.told, err = kv.Open(ctx, h.Deps.JS, routes, kv.JSON[tenantdb.Route]()); err != nil {
		return nil, err
	}
	if m.seen, err = kv.Open(ctx, h.Deps.JS, seen, kv.JSON[int64]()); err != nil {
		return nil, err
	}
	info, err := streams.Info(ctx, h.Deps.NC, streams.BucketStream(seen))
	if err != nil {
		return nil, fmt.Errorf("cannot look at the bucket %s: %w", seen, err)
	}
	if info.State.LastSeq > 0 { // else nobody has ever said anything
		m.heard = info.State.LastTime
	}
	return m, nil
}

// opens fails when there are credentials and the keys open none. Whoever has lost the keyset learns it from the server that does not start, not from a
// tenant that nobody gets into. That those of one tenant are not opened, as of one that was told under another name, keeps no server from the others.
func (m *mirror) opens(ctx context.Context, keys *secret.Keys) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var closed error
	opened := 0
	for e, err := range m.told.List(ctx, "") {
		switch {
		case errors.Is(err, kv.ErrCorrupt) || err == nil && e.Value.Credentials == "":
			continue
		case err != nil:
			return fmt.Errorf("cannot read where tenants are: %w", err)
		}
		if _, err := keys.Unseal(e.Value.Credentials, e.Key, e.Value.DatabaseName); err != nil {
			closed = err
			m.log.Warn("the credentials of a tenant cannot be opened: nobody gets into its database by them; rotate them", "tenant", e.Key, "database", e.Value.DatabaseName, "error", err)
			continue
		}
		opened++
	}
	if closed != nil && opened == 0 {
		return fmt.Errorf("tenants.keys is another keyset than before, so tenants could not be entered; put the one that was there back: %w", closed)
	}
	return nil
}

// tell stores where a tenant is, and returns when all who resolve it know. It never goes back to an earlier epoch, nor to another
// database under the same one, which nobody would follow: what was told already is a [*database.BehindError]. A switch has one attempt, and the tenant waits behind its fence until somebody looks at one that has failed: so
// what may pass, as a connection that is lost for a moment, is tried again within the mirror's patience, for the route and then for those who resolve it.
func (m *mirror) tell(ctx context.Context, r database.Route) error {
	if err := m.insist(ctx, r); err != nil {
		return fmt.Errorf("cannot tell where tenant %s is: %w", r.Enterprise, err)
	}
	return m.await(ctx, r.Enterprise, r.Epoch)
}

// insist is put until the bucket answers.
func (m *mirror) insist(outer context.Context, r database.Route) error {
	ctx, cancel := context.WithTimeout(outer, m.patience)
	defer cancel()
	var why error
	for try := 0; ; try++ {
		err := m.put(ctx, r)
		if err == nil && try > 0 { // an earlier try may have stored it, and nobody have heard of that
			err = m.hint(r.Enterprise)
		}
		if behind := (*database.BehindError)(nil); err == nil || errors.As(err, &behind) {
			return err
		}
		if why == nil || ctx.Err() == nil { // that the time is over tells less
			why = err
		}
		if !wait.Backoff(ctx, try) {
			return pg.Later(0, "the bucket of routes does not answer: %v", why)
		}
	}
}

// put stores a route. Credentials that were told with it stay where there are none now: whoever tells it again could not read them.
func (m *mirror) put(ctx context.Context, r database.Route) error {
	next := tenantdb.Route{
		IsolationMode: r.IsolationMode, DatabaseID: r.DatabaseID, DatabaseHost: r.DatabaseHost, DatabaseName: r.DatabaseName, Status: r.Status, Epoch: r.Epoch, Credentials: r.Credentials,
	}
	for {
		have, err := m.routes.Get(wait.EachRequest(ctx), r.Enterprise)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			value, _ := json.Marshal(next) // it always marshals
			_, err = m.routes.Create(wait.EachRequest(ctx), r.Enterprise, value)
		case err == nil:
			var old tenantdb.Route
			if json.Unmarshal(have.Value(), &old) == nil {
				if old.Epoch > r.Epoch || old.Epoch == r.Epoch && old.DatabaseName != r.DatabaseName {
					return &database.BehindError{Epoch: old.Epoch}
				}
				if old.Epoch == r.Epoch {
					next.Credentials = cmp.Or(r.Credentials, old.Credentials)
				}
			}
			value, _ := json.Marshal(next)
			if string(have.Value()) == string(value) {
				return nil
			}
			_, err = m.routes.Update(wait.EachRequest(ctx), r.Enterprise, value, have.Revision())
		}
		if err == nil {
			return m.hint(r.Enterprise)
		}
		if !errors.Is(err, jetstream.ErrKeyExists) { // which is also a revision that has gone by
			return err
		}
	}
}

// hint has applications look where a tenant is; they do so by themselves every five seconds.
func (m *mirror) hint(enterprise string) error {
	return m.nc.Publish(m.names.Moved(enterprise), nil)
}

// last is what was told last of a tenant, or the zero value.
func (m *mirror) last(ctx context.Context, enterprise string) (r cutover.Runtime, err error) {
	have, err := m.routes.Get(wait.EachRequest(ctx), enterprise)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, nil
	}
	if err != nil {
		return r, pg.Later(0, "the bucket does not answer: %v", err)
	}
	err = json.Unmarshal(have.Value(), &r) // a Route has its members under the same names
	return r, err
}

// sync tells again what the shared database says of every tenant that was moved.
func (m *mirror) sync(ctx context.Context, p *performer) error {
	var errs []error
	for _, s := range p.servers {
		routes, err := s.provider.Routes(ctx)
		errs = append(errs, err)
		for _, r := range routes {
			var behind *database.BehindError
			if err := m.put(ctx, r); !errors.As(err, &behind) { // told since it was read; or what the source says next is told above it
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
