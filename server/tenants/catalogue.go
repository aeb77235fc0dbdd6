package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// CatalogueBucket has which servers take databases of a size, by region, under the prefix of an installation.
const CatalogueBucket = "tenant_catalogue"

// sizeKey is before the name of a size in the bucket.
const sizeKey = "spec.db."

// Size says which servers get new databases of a size.
type Size struct {
	Regions map[string][]string `json:"regions" doc:"Names of servers, by region; those that the configuration lacks get none"`
	Set     bool                `json:"set" doc:"Somebody has set it, so that the configuration does not change it"`
}

// catalogue is what the bucket says. The configuration has the addresses of the servers, and what a size is that nobody has set.
type catalogue struct {
	log     *slog.Logger
	sizes   *kv.Bucket[Size]
	servers []config.TenantServer
}

func newCatalogue(ctx context.Context, h *server.Host) (*catalogue, error) {
	name := h.Deps.Names.Bucket(CatalogueBucket)
	if err := streams.EnsureBucket(ctx, h.Deps.JS, name, "Which servers get the databases of tenants, by size and region", 0, h.Replicas); err != nil {
		return nil, err
	}
	sizes, err := kv.Open(ctx, h.Deps.JS, name, kv.JSON[Size]())
	if err != nil {
		return nil, err
	}
	c := &catalogue{log: h.Log, sizes: sizes, servers: h.Config.Tenants.Servers}
	if err := c.seed(ctx); err != nil {
		return nil, fmt.Errorf("cannot have the bucket %s say what the configuration does: %w", name, err)
	}
	return c, nil
}

// configured are the sizes of the configuration.
func (c *catalogue) configured() map[string]Size {
	all := map[string]Size{}
	for _, s := range c.servers {
		region, sizes := cmp.Or(s.Region, config.DefaultRegion), s.Sizes
		if len(sizes) == 0 {
			sizes = []string{config.DefaultSize}
		}
		for _, size := range sizes {
			if _, known := all[size]; !known {
				all[size] = Size{Regions: map[string][]string{}}
			}
			all[size].Regions[region] = append(all[size].Regions[region], s.Name)
		}
	}
	return all
}

// seed has the bucket say what the configuration does, of all sizes that nobody has set.
func (c *catalogue) seed(ctx context.Context) error {
	want := c.configured()
	have, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, e := range have {
		next, known := want[e.Key]
		delete(want, e.Key)
		if !known {
			next.Regions = map[string][]string{}
		}
		if e.Value.Set || reflect.DeepEqual(e.Value, next) {
			continue
		}
		if err := c.put(ctx, e.Key, next, e.Revision); err != nil {
			return err
		}
	}
	for _, size := range slices.Sorted(maps.Keys(want)) {
		if err := c.put(ctx, size, want[size], 0); err != nil {
			return err
		}
	}
	return nil
}

// put stores what the configuration says; another node that has done so meanwhile is as good.
func (c *catalogue) put(ctx context.Context, size string, next Size, revision uint64) error {
	if _, err := c.sizes.Put(ctx, sizeKey+size, next, revision); err != nil && !errors.Is(err, kv.ErrConflict) {
		return err
	}
	return nil
}

// list are all sizes by their names, in order.
func (c *catalogue) list(ctx context.Context) (all []kv.Entry[Size], err error) {
	for e, err := range c.sizes.List(ctx, "") {
		if err != nil && !errors.Is(err, kv.ErrCorrupt) { // which is as if nobody had set it
			return nil, err
		}
		e.Key = strings.TrimPrefix(e.Key, sizeKey)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b kv.Entry[Size]) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// place is the server for a new database: of those that the catalogue has for its size and region, the one which the name of the tenant decides for; and the revision of the catalogue that said so.
func (c *catalogue) place(ctx context.Context, r *machine.RequestBody) (name string, revision uint64, err error) {
	size := sizeOf(r)
	var e kv.Entry[Size]
	if machines.IsLabel(size) { // else it is no key
		e, err = c.sizes.Get(ctx, sizeKey+size)
	}
	switch {
	case errors.Is(err, kv.ErrCorrupt): // which is as if nobody had set it
		e.Value = c.configured()[size]
	case err != nil && !errors.Is(err, kv.ErrNotFound):
		return "", 0, pg.Later(0, "the catalogue of sizes does not answer: %v", err)
	}
	name, err = c.among(map[string]Size{size: e.Value}, r)
	return name, e.Revision, err
}

// among is the server for a database of a request, as some sizes say.
func (c *catalogue) among(sizes map[string]Size, r *machine.RequestBody) (name string, err error) {
	region, size := cmp.Or(r.Region, config.DefaultRegion), sizeOf(r)
	var most uint64
	for _, s := range sizes[size].Regions[region] {
		if !c.has(s) {
			continue
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%s", s, r.EnterpriseID) // never fails
		if score := h.Sum64(); name == "" || score > most {
			name, most = s, score
		}
	}
	if name == "" {
		return "", pg.Refuse("no server of the configuration (tenants.servers) takes the region %s and the size %s: see instar tenant-size ls", region, size)
	}
	return name, nil
}

func sizeOf(r *machine.RequestBody) string { return cmp.Or(r.Spec, config.DefaultSize) }

// has reports whether a server is in the configuration.
func (c *catalogue) has(name string) bool {
	return slices.ContainsFunc(c.servers, func(s config.TenantServer) bool { return s.Name == name })
}
