package api

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
)

// A store that was restored, or has lost its end, gives its revisions out again, so that a revision alone does not say whether
// a client that comes back has what this store had. So the id of an event names, beside the revision, the last items that
// the client was told of, with their times: as long as one of them is what it was, so is everything before it, as for
// the witnesses of package kv. What it was told after that one is named, too: it has to be sent again, or the client begins
// anew.

// maxWitnesses is how many of them an id names. When all of them were written again, the client begins anew.
const maxWitnesses = 5

// witness is the last that a client was told of a key.
type witness struct {
	key uint64 // a hash
	rev uint64
	at  uint64 // a part of its time, above 0; 0 of one that was deleted
}

func witnessOf(it *index.Item) witness {
	return witness{hashOf(it.Key), it.Revision, 1 + uint64(it.UpdatedAt.UnixNano())%(1<<31)} // as bits
}

func deletedWitness(it *index.Item) witness { return witness{key: hashOf(it.Key), rev: it.Revision} }

// hashOf is the same at all nodes, and short.
func hashOf(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum64() >> 28
}

// note remembers what the client is told of a key.
func (w *watched) note(o witness) {
	w.told = slices.DeleteFunc(w.told, func(was witness) bool { return was.key == o.key })
	at, _ := slices.BinarySearchFunc(w.told, o.rev, func(was witness, rev uint64) int { return cmp.Compare(rev, was.rev) })
	if at < maxWitnesses {
		w.told = slices.Insert(w.told, at, o)
		w.told = w.told[:min(len(w.told), maxWitnesses)]
	}
}

// place is where the client goes on with one machine.
func (w *watched) place() string {
	b := append(strconv.AppendUint(nil, w.mark, 10), '-')
	for i, o := range w.told {
		if i > 0 {
			b = append(b, '-')
		}
		b = append(strconv.AppendUint(b, o.rev, 36), '.')
		b = append(strconv.AppendUint(b, o.at, 36), '.')
		b = strconv.AppendUint(b, o.key, 36)
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
	if rest == "" {
		return true
	}
	for part := range strings.SplitSeq(rest, "-") {
		var numbers []uint64
		for text := range strings.SplitSeq(part, ".") {
			n, err := strconv.ParseUint(text, 36, 64)
			if err != nil {
				return false
			}
			numbers = append(numbers, n)
		}
		if len(numbers) != 3 || len(w.names) == maxWitnesses {
			return false
		}
		w.names = append(w.names, witness{rev: numbers[0], at: numbers[1], key: numbers[2]})
	}
	return true
}

// newest is the latest revision of what the client was told: less would take it back.
func (w *watched) newest() uint64 {
	rev := w.after
	for _, o := range w.names {
		rev = max(rev, o.rev)
	}
	return rev
}

// proven sets after to what the store is known to share with what the client was told. It is false when the client may have
// more than is sent behind that, so that it has to forget everything.
func (w *watched) proven(ix *index.Index) bool {
	switch {
	case w.after == 0 && len(w.names) == 0:
		return true
	case len(w.filter.States) > 0:
		return false // it is not known who has left them meanwhile
	case w.filter.Key != "":
		it, ok := ix.Get(w.filter.Key)
		if ok && w.tells && !slices.Contains(w.names, witnessOf(&it)) {
			w.after = 0 // it is sent whole
		}
		return ok
	case !w.tells:
		return true
	case len(w.names) == 0:
		w.after = 0
		return true // it has nothing that could be wrong
	}
	has := w.named(ix)
	shared := uint64(0)
	for _, o := range w.names {
		if has[o.key] == o {
			shared = max(shared, o.rev)
		}
	}
	w.after = min(w.after, shared)
	for _, o := range w.names {
		is, there := has[o.key]
		if there && is != o && is.rev <= w.after || !there && o.at > 0 {
			return false // it is not sent
		}
		if !there {
			w.note(o)
		}
	}
	return shared > 0
}

// named are the items that the store has under the keys that the client names.
func (w *watched) named(ix *index.Index) map[uint64]witness {
	has := make(map[uint64]witness, len(w.names))
	query := w.query
	for query.Limit = rest.MaxPage; ; {
		page := ix.List(query)
		for i := range page.Items {
			o := witnessOf(&page.Items[i])
			if slices.ContainsFunc(w.names, func(was witness) bool { return was.key == o.key }) {
				has[o.key] = o
			}
		}
		if query.After = page.Next; page.Next == "" {
			return has
		}
	}
}
