package api

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/kv"
)

// A store that was restored, or has lost its end, gives its revisions out again, so that a revision alone does not say whether
// a client that comes back has what this store had. So the id of an event names, beside the revision, the last items that
// the client was told of, with their times: as long as one of them is what it was, so is everything before it, as for
// the witnesses of package kv.

// maxWitnesses is how many of them an id names. When all of them were written again, the client begins anew.
const maxWitnesses = 5

// witness is an item that a client was told of.
type witness struct {
	key string // empty of one that an id names
	rev uint64
	at  uint64 // a part of its time
}

func witnessOf(it *kv.Item) witness {
	return witness{it.Key, it.Revision, uint64(it.UpdatedAt.UnixNano()) % (1 << 31)} //nolint:gosec // as bits
}

// note remembers an item that the client is told of.
func (w *watched) note(it *kv.Item) {
	w.unnote(it.Key)
	at, _ := slices.BinarySearchFunc(w.told, it.Revision, func(o witness, rev uint64) int { return cmp.Compare(rev, o.rev) })
	if at < maxWitnesses {
		w.told = slices.Insert(w.told, at, witnessOf(it))
		w.told = w.told[:min(len(w.told), maxWitnesses)]
	}
}

func (w *watched) unnote(key string) {
	w.told = slices.DeleteFunc(w.told, func(o witness) bool { return o.key == key })
}

// place is where the client goes on with one machine.
func (w *watched) place() string {
	b := append(strconv.AppendUint(nil, w.mark, 10), '-')
	for i, o := range w.told {
		if i > 0 {
			b = append(b, '-')
		}
		b = strconv.AppendUint(append(strconv.AppendUint(b, o.rev, 36), '.'), o.at, 36)
	}
	return string(b)
}

// goOn reads a place. A number alone, such as the revision of a list, is believed.
func (w *watched) goOn(place string) bool {
	number, rest, tells := strings.Cut(place, "-")
	rev, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return false
	}
	w.after, w.tells, w.names = rev, tells, nil
	for part := range strings.SplitSeq(rest, "-") {
		if rest == "" {
			break
		}
		rev, at, _ := strings.Cut(part, ".")
		r, err := strconv.ParseUint(rev, 36, 64)
		t, err2 := strconv.ParseUint(at, 36, 64)
		if err != nil || err2 != nil || len(w.names) == maxWitnesses {
			return false
		}
		w.names = append(w.names, witness{rev: r, at: t})
	}
	return true
}

// proven sets after to what the store is known to share with what the client was told. It is false when there is nothing, so
// that the client has to forget everything.
func (w *watched) proven(ix *kv.Index) bool {
	if !w.tells || w.after == 0 {
		return true
	}
	most := w.after
	w.after = 0
	if len(w.names) == 0 {
		return true // it has nothing that could be wrong
	}
	look := func(it *kv.Item) {
		o := witnessOf(it)
		if o.key = ""; it.Revision > w.after && slices.Contains(w.names, o) {
			w.after = min(it.Revision, most)
		}
	}
	if w.filter.Key != "" {
		if it, ok := ix.Get(w.filter.Key); ok {
			look(&it)
		}
		return true // it is sent whole
	}
	query := w.query
	for query.Limit = maxPage; ; {
		page := ix.List(query)
		for i := range page.Items {
			look(&page.Items[i])
		}
		if query.After = page.Next; page.Next == "" {
			return w.after > 0
		}
	}
}
