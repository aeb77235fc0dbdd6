package api

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/kv/index"
)

const (
	quiet   = 250 * time.Millisecond // without a change, everything up to the revision of before was sent
	waiting = 4096                   // keys that may wait for a slow client
)

// Snapshot is the first event of a watch, in parts of up to maxPage items.
type Snapshot struct {
	Machine  string          `json:"machine"`
	Revision uint64          `json:"revision"`
	Items    []entities.Item `json:"items"`
	More     bool            `json:"more"`
}

// change is one change with the machine that it is of.
type change struct {
	w *watched
	index.Change
}

// follow sends a snapshot and then changes. It returns true when changes were lost.
func (s *Server) follow(q *rest.Request, ctx context.Context, w *sse.Writer, all []*watched) (lost bool) {
	ctx, cancel := context.WithCancel(ctx)
	changes := make(chan change)
	ended := make(chan struct{}, len(all))
	var pumps sync.WaitGroup
	defer func() {
		cancel()
		for _, one := range all {
			one.sub.Close()
		}
		pumps.Wait()
	}()
	for _, one := range all {
		one.sub = s.store.Index(one.m.Name).Subscribe(one.filter, waiting)
	}
	w.SetStale(s.staleOf(q, all))
	if !s.goesOn(q, all) {
		anew(w, all, "what was told may not hold any more")
	}
	for _, one := range all {
		if !s.snapshot(q, w, one) {
			return false
		}
	}
	w.Id(idOf(all))
	for _, one := range all {
		pumps.Go(func() {
			for c := range one.sub.C {
				select {
				case changes <- change{one, c}:
				case <-ctx.Done():
					return
				}
			}
			ended <- struct{}{}
		})
	}
	return s.pass(q, ctx, w, all, changes, ended)
}

// pass writes changes as they come.
func (s *Server) pass(q *rest.Request, ctx context.Context, w *sse.Writer, all []*watched, changes <-chan change, ended <-chan struct{}) (lost bool) {
	beat := time.NewTicker(sse.Heartbeat)
	defer beat.Stop()
	calm := time.NewTimer(quiet)
	defer calm.Stop()
	seen := s.revisions(q, all)
	for w.Err == nil {
		select {
		case c := <-changes:
			s.pushChange(q, w, all, c)
			s.pushMore(q, w, all, changes)
			w.Flush()
			calm.Reset(quiet)
			seen = s.revisions(q, all)
		case <-calm.C:
			if s.settleMarks(q, all, seen) {
				w.Id(idOf(all))
			}
		case <-beat.C:
			w.SetStale(s.staleOf(q, all))
			w.Comment()
			seen = s.revisions(q, all)
			calm.Reset(quiet)
		case <-ended:
			return true
		case <-ctx.Done():
			return false
		case <-s.rest.Closing().Done():
			return false
		}
	}
	return false
}

// pushMore writes what has come meanwhile, so that it goes out together, but not for ever.
func (s *Server) pushMore(q *rest.Request, w *sse.Writer, all []*watched, changes <-chan change) {
	for range rest.MaxPage {
		select {
		case c := <-changes:
			s.pushChange(q, w, all, c)
		default:
			return
		}
	}
}

func (s *Server) revisions(q *rest.Request, all []*watched) []uint64 {
	seen := make([]uint64, len(all))
	for i, one := range all {
		seen[i] = s.store.Index(one.m.Name).Revision()
	}
	return seen
}

// settleMarks raises the marks to what the indexes had before it was quiet.
func (s *Server) settleMarks(q *rest.Request, all []*watched, seen []uint64) bool {
	raised := false
	for i, one := range all {
		if seen[i] > one.mark {
			one.mark, raised = seen[i], true
		}
	}
	return raised
}

// idOf is where a reconnect goes on. A change of many keys may overtake one of another key that waits, so that its
// revision says nothing about others: the id is the mark, and not the revision.
func idOf(all []*watched) string {
	if len(all) == 1 {
		return all[0].place()
	}
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = one.m.Name + ":" + one.place()
	}
	return strings.Join(parts, ",")
}

// snapshot sends what there is, or what has changed since the client left.
func (s *Server) snapshot(q *rest.Request, w *sse.Writer, one *watched) bool {
	ix := s.store.Index(one.m.Name)
	one.newer = map[string]uint64{}
	part := Snapshot{Machine: one.m.Name}
	if one.filter.Key != "" {
		s.snapshotOf(q, w, one, &part)
		return w.Err == nil
	}
	query := one.query
	query.Limit = rest.MaxPage
	for first := true; w.Err == nil; first = false {
		page := ix.List(query)
		if first {
			one.base, one.mark = page.Revision, page.Revision
		}
		part.Items = make([]entities.Item, 0, len(page.Items))
		part.Revision, part.More = page.Revision, page.Next != ""
		for _, it := range page.Items {
			one.note(witnessOf(&it))
			if it.Revision > one.base {
				one.newer[it.Key] = it.Revision
			}
			if it.Revision > one.after {
				part.Items = append(part.Items, entities.ItemOf(it))
			}
		}
		if len(part.Items) > 0 || !part.More {
			w.Send("snapshot", "", part)
		}
		if !part.More {
			return w.Err == nil
		}
		query.After = page.Next
	}
	return false
}

// goesOn reports whether the client may keep all that it was told, of whatever machine.
func (s *Server) goesOn(q *rest.Request, all []*watched) bool {
	for _, one := range all {
		ix := s.store.Index(one.m.Name)
		if rev := one.newest(); rev > ix.Revision() && !s.reached(q, ix, rev) || !one.proven(ix) {
			return false
		}
	}
	return true
}

// anew makes the client forget everything, so that it is sent everything of all machines.
func anew(w *sse.Writer, all []*watched, why string) {
	for _, one := range all {
		one.after, one.names, one.told = 0, nil, nil
	}
	w.Notice("reset", why)
}

// reached reports whether the index has a revision that the client has seen elsewhere, or gets it soon.
func (s *Server) reached(q *rest.Request, ix *index.Index, rev uint64) bool {
	if rev > ix.Lag().Known {
		return false // nobody here knows it
	}
	ctx, cancel := context.WithTimeout(q.Context(), rest.MinRevisionWait)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	return ix.Wait(ctx, rev) == nil
}

// snapshotOf sends one entity whole.
func (s *Server) snapshotOf(q *rest.Request, w *sse.Writer, one *watched, part *Snapshot) {
	ix := s.store.Index(one.m.Name)
	one.base = ix.Revision()
	part.Revision, part.Items = one.base, []entities.Item{}
	one.mark = one.base
	it, ok := ix.Get(one.filter.Key)
	if ok && it.Revision > one.after {
		item := entities.ItemOf(it)
		if e, err := s.store.Load(q, one.m, one.filter.Key); err == nil {
			item.Entity = e
		}
		part.Items = append(part.Items, item)
		one.newer[it.Key] = it.Revision
	}
	if ok {
		one.note(witnessOf(&it))
	}
	w.Send("snapshot", idOf([]*watched{one}), part)
}

// pushChange writes one change, unless the snapshot had it.
func (s *Server) pushChange(q *rest.Request, w *sse.Writer, all []*watched, c change) {
	rev := c.Item.Revision
	if rev <= c.w.base || rev <= c.w.newer[c.Item.Key] {
		return
	}
	delete(c.w.newer, c.Item.Key)
	if c.w.filter.Key != "" && rev > c.w.mark {
		c.w.mark = rev // nothing else can wait
	}
	if c.Deleted {
		c.w.note(deletedWitness(&c.Item))
	} else {
		c.w.note(witnessOf(&c.Item))
	}
	id := idOf(all)
	if c.Deleted {
		w.Send("deleted", id, struct {
			Machine  string `json:"machine"`
			Key      string `json:"key"`
			Revision uint64 `json:"revision"`
		}{c.w.m.Name, c.Item.Key, rev})
		return
	}
	e, err := s.store.Decode(c.w.m, c.Item.Key, c.Value, rev)
	if err != nil {
		w.Send("parked", id, struct {
			Machine string        `json:"machine"`
			Item    entities.Item `json:"item"`
		}{c.w.m.Name, entities.ItemOf(index.Item{Key: c.Item.Key, Revision: rev, UpdatedAt: c.Item.UpdatedAt, Problem: "parked"})})
		return
	}
	w.Send("entity", id, e)
}
