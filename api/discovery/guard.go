package discovery

import (
	"context"
	"strings"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/preservation"
)

// followGuards keeps in mind which services are in self-preservation.
func (c *Catalog) followGuards(ctx context.Context, ix *index.Index) error {
	b := ix.Batches(index.Filter{}, Waiting)
	defer b.Close()
	seen := map[string]struct{}{}
	for q := (index.Query{Limit: page}); ; {
		p := ix.List(q)
		for _, it := range p.Items {
			seen[it.Key] = struct{}{}
			c.guard(it.Key, guards(it.State))
		}
		if q.After = p.Next; q.After == "" {
			break
		}
	}
	for _, key := range c.guards() {
		if _, there := seen[key]; !there {
			c.guard(key, false)
		}
	}
	for {
		changes, _, err := b.Next(ctx)
		if err != nil {
			return err
		}
		for _, ch := range changes {
			c.guard(ch.Item.Key, !ch.Deleted && guards(ch.Item.State))
		}
	}
}

// guards reports whether what is found in a zone in that state may be gone.
func guards(state string) bool {
	return state == preservation.Protected || state == preservation.Recovering
}

func (c *Catalog) guards() (keys []string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for service, zones := range c.guarded {
		for zone := range zones {
			keys = append(keys, service+"."+zone)
		}
	}
	return keys
}

// guard notes that a zone of a service is in self-preservation, or does not any more.
func (c *Catalog) guard(key string, on bool) {
	i := strings.LastIndexByte(key, '.')
	if i < 0 || !strings.Contains(key[:i], ".") {
		return // not a key of ours
	}
	name, zone := key[:i], key[i+1:]
	c.mu.Lock()
	if on {
		if c.guarded[name] == nil {
			c.guarded[name] = map[string]struct{}{}
		}
		c.guarded[name][zone] = struct{}{}
	} else if delete(c.guarded[name], zone); len(c.guarded[name]) == 0 {
		delete(c.guarded, name)
	}
	guarded := len(c.guarded[name]) > 0
	s, _ := c.services.Load(name) // under the lock: one that is being opened looks at the same map
	c.mu.Unlock()
	if s != nil {
		s.(*service).guard(guarded)
	}
}
