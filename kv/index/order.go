package index

import (
	"cmp"
	"slices"
	"strings"
)

// Order is how the items of a list follow one another: by a time, and by key where that is the same. The zero value is
// by key alone, which is the only order that a page is found in without looking at all items that match.
type Order struct {
	By         By
	Descending bool // the times; keys always ascend
}

// By is a time of an item.
type By uint8

// What lists are ordered by.
const (
	ByKey By = iota
	ByCreated
	ByUpdated
	BySince
)

// of is the time of a row that it is ordered by.
func (o Order) of(r *row) int64 {
	switch o.By {
	case ByCreated:
		return r.created
	case ByUpdated:
		return r.updated
	default:
		return r.since
	}
}

// compare orders two places in the list.
func (o Order) compare(a, b place) int {
	c := cmp.Compare(a.at, b.at)
	if o.Descending {
		c = -c
	}
	if c == 0 {
		c = strings.Compare(a.key, b.key)
	}
	return c
}

// place is where an item stands in an order.
type place struct {
	at  int64
	key string
}

// ranked keeps the first items of an order that were seen so far.
type ranked struct {
	order  Order
	after  *place // only what comes after it
	most   int
	places []place
	items  []Item
}

func (k *ranked) take(t *table, r *row) {
	p := place{k.order.of(r), r.key}
	if k.after != nil && k.order.compare(p, *k.after) <= 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(k.places, p, k.order.compare)
	if i == k.most {
		return
	}
	k.places, k.items = slices.Insert(k.places, i, p), slices.Insert(k.items, i, t.item(r))
	if len(k.places) > k.most {
		k.places, k.items = k.places[:k.most], k.items[:k.most]
	}
}

// ordered is List in another order than that of keys. It looks at all items that match, whatever the page.
func (ix *Index) ordered(q Query) Page {
	k := &ranked{order: q.Order, most: q.Limit + 1}
	if q.After != "" {
		k.after = &place{nanos(q.AfterTime), q.After}
	}
	q.After = ""
	p := Page{Revision: ix.visit(&q, func(t *table, r *row) bool { k.take(t, r); return true })}
	p.Items = k.items
	if len(p.Items) > q.Limit {
		last := k.places[q.Limit-1]
		p.Items, p.Next, p.NextTime = p.Items[:q.Limit], last.key, instant(last.at)
	}
	return p
}

// visit shows the rows that match in the order of keys, until see says that it has seen enough. It returns the revision up
// to which all writes are in what was seen.
func (ix *Index) visit(q *Query, see func(*table, *row) bool) (revision uint64) {
	for start, more, first := q.start(), true, true; more; first = false {
		ix.mu.RLock()
		if first {
			revision = ix.rev.Load()
		}
		start, more = ix.table.scan(q, start, see)
		ix.mu.RUnlock()
	}
	return revision
}
