package watch

// The events of a watch, once watch.go has read what is asked for. follow joins the fan-out of what is wanted (fanout.go), sends what there
// is as a snapshot, and passes on what the fan-out sends (pass). It ends with the client or the server, or returns true when changes were
// lost: then watch.go begins anew.

import (
	"context"
	"time"

	"github.com/bcc94042/instar/api/entities"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/api/sse"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
)

// inPart is how many items a part of a snapshot has: some 40 KB, as much as a watch may take (api.WatchMemory).
const inPart = 100

// Snapshot is the first event of a watch, in parts of up to 100 items.
type Snapshot struct {
	Machine  string          `json:"machine"`
	Revision uint64          `json:"revision"`
	Items    []entities.Item `json:"items"`
	More     bool            `json:"more"`
}

// follow sends a snapshot and then changes. It returns true when changes were lost.
func (s *Service) follow(q *rest.Request, ctx context.Context, w *sse.Writer, all []*watched) (lost bool) {
	r := s.join(all)
	defer s.leave(r)
	w.SetStale(s.staleOf(all))
	if !s.mayKeep(q, all) {
		sendReset(w, all, "what was told may not hold any more")
	}
	breath := time.NewTimer(0)
	defer breath.Stop()
	<-breath.C
	for _, one := range all {
		if !s.snapshot(ctx, breath, q, w, one) {
			return false
		}
	}
	w.Id(idOf(all))
	r.has()
	return s.pass(ctx, w, all, r)
}

// pass writes changes as they come.
func (s *Service) pass(ctx context.Context, w *sse.Writer, all []*watched, r *reader) (lost bool) {
	beat := time.NewTicker(sse.Heartbeat)
	defer beat.Stop()
	r.signal()
	for w.Err == nil {
		select {
		case <-r.wake:
			more, lost := r.send(w)
			if lost {
				return true
			}
			if more {
				r.signal()
			}
		case <-beat.C:
			w.SayStale(s.staleOf(all)) // a browser does not see the comment
			w.Comment()
		case <-ctx.Done():
			return false
		case <-s.rest.Closing().Done():
			return false
		}
	}
	return false
}

func (s *Service) staleOf(all []*watched) time.Duration {
	ms := make([]*machines.Machine, len(all))
	for i, one := range all {
		ms[i] = one.m
	}
	return s.store.Stale(ms...)
}

// snapshot sends what there is, or what has changed since the client left. Its parts are paid for like changes: when a feed was lost, all of its readers are sent one at once.
func (s *Service) snapshot(ctx context.Context, breath *time.Timer, q *rest.Request, w *sse.Writer, one *watched) bool {
	ix := s.store.Index(one.m.Name)
	one.newer = map[string]uint64{}
	part := Snapshot{Machine: one.m.Name}
	if one.filter.Key != "" {
		s.snapshotOf(q, w, one, &part)
		return w.Err == nil
	}
	query := one.query
	query.Limit = inPart
	for first := true; w.Err == nil; first = false {
		page := ix.List(query)
		if first {
			one.base, one.mark, one.seen = page.Revision, page.Revision, page.Revision
		}
		part.Items = make([]entities.Item, 0, len(page.Items))
		part.Revision, part.More = page.Revision, page.Next != ""
		for _, it := range page.Items {
			one.note(witnessOf(&it))
			one.seen = max(one.seen, it.Revision)
			if it.Revision > one.base {
				one.newer[it.Key] = it.Revision
			}
			if it.Revision > one.after {
				part.Items = append(part.Items, entities.ItemOf(it))
			}
		}
		if len(part.Items) > 0 || !part.More {
			before := w.Sent
			w.Send("snapshot", "", part)
			if w.Flush(); !pause(ctx, breath, s.fanouts.budget.spend(w.Sent-before+perWrite)) {
				return false
			}
		}
		if !part.More {
			return w.Err == nil
		}
		query.After = page.Next
	}
	return false
}

// mayKeep reports whether the client may keep everything that it was sent, of every machine.
func (s *Service) mayKeep(q *rest.Request, all []*watched) bool {
	for _, one := range all {
		ix := s.store.Index(one.m.Name)
		if rev := one.newest(); rev > ix.Revision() && !s.reached(q, ix, rev) || !one.proven(ix) {
			return false
		}
	}
	return true
}

// sendReset has the client drop everything, so that it is sent everything of all machines.
func sendReset(w *sse.Writer, all []*watched, why string) {
	for _, one := range all {
		one.after, one.names, one.told, one.kept = 0, nil, nil, nil
	}
	w.Notice("reset", why)
}

// reached reports whether the index has a revision that the client has seen elsewhere, or gets it soon.
func (s *Service) reached(q *rest.Request, ix *index.Index, rev uint64) bool {
	if rev > ix.Lag().Known {
		return false // this node has never heard of it
	}
	ctx, cancel := context.WithTimeout(q.Context(), rest.MinRevisionWait)
	defer cancel()
	defer context.AfterFunc(s.rest.Closing(), cancel)()
	return ix.Wait(ctx, rev) == nil
}

// snapshotOf sends one entity whole.
func (s *Service) snapshotOf(q *rest.Request, w *sse.Writer, one *watched, part *Snapshot) {
	ix := s.store.Index(one.m.Name)
	one.base = ix.Revision()
	part.Revision, part.Items = one.base, []entities.Item{}
	one.mark, one.seen = one.base, one.base
	it, ok := ix.Get(one.filter.Key)
	if ok && it.Revision > one.after {
		item, sent := entities.ItemOf(it), it.Revision
		if e, err := s.store.Load(q, one.m, one.filter.Key); err == nil {
			item.Entity, sent = e, max(sent, e.Revision) // its bucket may be ahead of the index, whose changes up to there would go back
		}
		part.Items = append(part.Items, item)
		one.newer[it.Key], one.seen = sent, max(one.seen, sent)
	}
	if ok {
		one.note(witnessOf(&it))
		one.seen = max(one.seen, it.Revision)
	}
	w.Send("snapshot", idOf([]*watched{one}), part)
}
