package platform

import (
	"context"
	"slices"
	"strings"

	"github.com/bcc94042/instar/kv/index"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/server"
	front "github.com/bcc94042/instar/server/domains"
)

// sweep gives slugs free whose session is gone: a backup has the sessions and the table of different moments.
func sweep(ctx context.Context, h *server.Host, proxy *front.Front) {
	sessions := h.Indexes.Get(machine.Machine.Name)
	for host, row := range proxy.Rows(ctx) {
		key, ours := strings.CutPrefix(row.Owner, machine.Machine.Name+"/")
		switch {
		case !ours:
		case gone(sessions, key, row.Fence):
			if err := free(ctx, proxy, host, row); err != nil && ctx.Err() == nil {
				h.Log.Warn("a slug whose session is gone is kept until the next sweep", "domain", host, "session", key, "error", err)
			}
		}
	}
}

// gone reports whether a session certainly has no slug any more. One that had it at a version which is newer than what is known of it has begun anew.
func gone(sessions *index.Index, key string, version uint64) bool {
	select {
	case <-sessions.Ready():
	default:
		return false // not known yet
	}
	item, known := sessions.Get(key)
	return known && item.Version >= version && slices.Contains([]string{machine.Retired, machine.RolledBack, machine.Cancelled}, item.State) || !known && sessions.Lacks(key)
}

// free gives a slug free, unless a task has spoken since.
func free(ctx context.Context, t domain.Table, host string, seen domain.Row) error {
	return t.Change(ctx, host, func(r domain.Row) (domain.Row, error) {
		if r.Owner != seen.Owner || r.Fence != seen.Fence {
			return r, nil
		}
		return r.Free(r.Owner, r.Fence), nil
	})
}
