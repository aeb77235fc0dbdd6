package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/kv"
)

const (
	heartbeat = 10 * time.Second
	quiet     = 250 * time.Millisecond // without a change, everything up to the revision of before was sent
	waiting   = 4096                   // keys that may wait for a slow client
)

// Snapshot is the first event of a watch, in parts of up to maxPage items.
type Snapshot struct {
	Machine  string `json:"machine"`
	Revision uint64 `json:"revision"`
	Items    []Item `json:"items"`
	More     bool   `json:"more"`
}

// change is one change with the machine that it is of.
type change struct {
	w *watched
	kv.Change
}

// follow sends a snapshot and then changes. It returns true when changes were lost.
func (q *request) follow(ctx context.Context, w *eventWriter, all []*watched) (lost bool) {
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
		one.sub = q.o.Indexes[one.m.Name].Subscribe(one.filter, waiting)
	}
	w.fresh(q.staleOf(all))
	if !q.goesOn(all) {
		anew(w, all, "what was told may not hold any more")
	}
	for _, one := range all {
		if !q.snapshot(w, one) {
			return false
		}
	}
	w.id(idOf(all))
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
	return q.pass(ctx, w, all, changes, ended)
}

// pass writes changes as they come.
func (q *request) pass(ctx context.Context, w *eventWriter, all []*watched, changes <-chan change, ended <-chan struct{}) (lost bool) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	calm := time.NewTimer(quiet)
	defer calm.Stop()
	seen := q.revisions(all)
	for w.err == nil {
		select {
		case c := <-changes:
			q.pushChange(w, all, c)
			q.pushMore(w, all, changes)
			w.flush()
			calm.Reset(quiet)
			seen = q.revisions(all)
		case <-calm.C:
			if q.settleMarks(all, seen) {
				w.id(idOf(all))
			}
		case <-beat.C:
			w.fresh(q.staleOf(all))
			w.comment()
			seen = q.revisions(all)
			calm.Reset(quiet)
		case <-ended:
			return true
		case <-ctx.Done():
			return false
		case <-q.closing.Done():
			return false
		}
	}
	return false
}

// pushMore writes what has come meanwhile, so that it goes out together, but not for ever.
func (q *request) pushMore(w *eventWriter, all []*watched, changes <-chan change) {
	for range maxPage {
		select {
		case c := <-changes:
			q.pushChange(w, all, c)
		default:
			return
		}
	}
}

func (q *request) revisions(all []*watched) []uint64 {
	seen := make([]uint64, len(all))
	for i, one := range all {
		seen[i] = q.o.Indexes[one.m.Name].Revision()
	}
	return seen
}

// settleMarks raises the marks to what the indexes had before it was quiet.
func (q *request) settleMarks(all []*watched, seen []uint64) bool {
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
func (q *request) snapshot(w *eventWriter, one *watched) bool {
	ix := q.o.Indexes[one.m.Name]
	one.newer = map[string]uint64{}
	part := Snapshot{Machine: one.m.Name}
	if one.filter.Key != "" {
		q.snapshotOf(w, one, &part)
		return w.err == nil
	}
	query := one.query
	query.Limit = maxPage
	for first := true; w.err == nil; first = false {
		page := ix.List(query)
		if first {
			one.base, one.mark = page.Revision, page.Revision
		}
		part.Items = make([]Item, 0, len(page.Items))
		part.Revision, part.More = page.Revision, page.Next != ""
		for _, it := range page.Items {
			one.note(witnessOf(&it))
			if it.Revision > one.base {
				one.newer[it.Key] = it.Revision
			}
			if it.Revision > one.after {
				part.Items = append(part.Items, itemOf(it))
			}
		}
		if len(part.Items) > 0 || !part.More {
			w.send("snapshot", "", part)
		}
		if !part.More {
			return w.err == nil
		}
		query.After = page.Next
	}
	return false
}

// goesOn reports whether the client may keep all that it was told, of whatever machine.
func (q *request) goesOn(all []*watched) bool {
	for _, one := range all {
		ix := q.o.Indexes[one.m.Name]
		if rev := one.newest(); rev > ix.Revision() && !q.reached(ix, rev) || !one.proven(ix) {
			return false
		}
	}
	return true
}

// anew makes the client forget everything, so that it is sent everything of all machines.
func anew(w *eventWriter, all []*watched, why string) {
	for _, one := range all {
		one.after, one.names, one.told = 0, nil, nil
	}
	w.say("reset", why)
}

// reached reports whether the index has a revision that the client has seen elsewhere, or gets it soon.
func (q *request) reached(ix *kv.Index, rev uint64) bool {
	if rev > ix.Lag().Known {
		return false // nobody here knows it
	}
	ctx, cancel := context.WithTimeout(q.ctx(), minRevisionWait)
	defer cancel()
	defer context.AfterFunc(q.closing, cancel)()
	return ix.Wait(ctx, rev) == nil
}

// snapshotOf sends one entity whole.
func (q *request) snapshotOf(w *eventWriter, one *watched, part *Snapshot) {
	ix := q.o.Indexes[one.m.Name]
	one.base = ix.Revision()
	part.Revision, part.Items = one.base, []Item{}
	one.mark = one.base
	it, ok := ix.Get(one.filter.Key)
	if ok && it.Revision > one.after {
		item := itemOf(it)
		if e, err := q.load(one.m, one.filter.Key); err == nil {
			item.Entity = e
		}
		part.Items = append(part.Items, item)
		one.newer[it.Key] = it.Revision
	}
	if ok {
		one.note(witnessOf(&it))
	}
	w.send("snapshot", idOf([]*watched{one}), part)
}

// pushChange writes one change, unless the snapshot had it.
func (q *request) pushChange(w *eventWriter, all []*watched, c change) {
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
		w.send("deleted", id, struct {
			Machine  string `json:"machine"`
			Key      string `json:"key"`
			Revision uint64 `json:"revision"`
		}{c.w.m.Name, c.Item.Key, rev})
		return
	}
	e, err := q.decode(c.w.m, c.Item.Key, c.Value, rev)
	if err != nil {
		w.send("parked", id, struct {
			Machine string `json:"machine"`
			Item    Item   `json:"item"`
		}{c.w.m.Name, itemOf(kv.Item{Key: c.Item.Key, Revision: rev, UpdatedAt: c.Item.UpdatedAt, Problem: "parked"})})
		return
	}
	w.send("entity", id, e)
}

// eventWriter writes server-sent events. After the first error it writes nothing more.
type eventWriter struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
	err error

	stale bool // the watch was told so
}

func newEventWriter(q *request) *eventWriter {
	h := q.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	q.w.WriteHeader(http.StatusOK)
	w := &eventWriter{w: q.w, rc: http.NewResponseController(q.w)}
	w.buf.WriteString("retry: 2000\n\n")
	w.flush()
	return w
}

// send writes one event; it reaches the client with the next flush.
func (w *eventWriter) send(event, id string, data any) {
	if w.err != nil {
		return
	}
	text, err := json.Marshal(data) // one line
	if err != nil {
		w.err = err
		return
	}
	w.event(event, id, text)
}

// event is send for what is written already, in one line.
func (w *eventWriter) event(event, id string, text []byte) {
	if w.err != nil {
		return
	}
	if id != "" {
		w.buf.WriteString("id: " + id + "\n")
	}
	w.buf.WriteString("event: " + event + "\ndata: ")
	w.buf.Write(text)
	w.buf.WriteString("\n\n")
	if w.buf.Len() > 64<<10 {
		w.flush()
	}
}

// say sends an event that is about the watch itself.
func (w *eventWriter) say(event, why string) {
	w.send(event, "", struct {
		Reason string `json:"reason"`
	}{why})
	w.flush()
}

// id moves the place of a reconnect without an event.
func (w *eventWriter) id(id string) {
	w.buf.WriteString("id: " + id + "\n\n")
	w.flush()
}

func (w *eventWriter) comment() {
	w.buf.WriteString(": still here\n\n")
	w.flush()
}

func (w *eventWriter) flush() {
	if w.err != nil || w.buf.Len() == 0 {
		return
	}
	if _, w.err = w.w.Write(w.buf.Bytes()); w.err == nil {
		w.err = w.rc.Flush()
	}
	w.buf.Reset()
}
