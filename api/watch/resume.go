package watch

// The ids of watch events, and what a client that comes back with one may keep. log.go notes what is sent (note) and writes ids from that (place, idOf); watch.go reads
// the id of a client (parsePlace). proven then compares it with the index: it sets the revision after which changes are sent, or finds that the client has to begin anew.

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv/index"
)

// A store that was restored, or has lost its end, assigns the same revisions again, so that a revision alone does not say whether
// a client that comes back has what this store had. So the id of an event names, beside the revision, the last items that
// the client was sent, with their times: as long as one of them is what it was, so is everything before it, as for
// the witnesses of package feed. What it was sent after that one is named, too: it has to be sent again, or the client begins
// anew.

// maxWitnesses is how many of them an id names. When all of them were written again, the client begins anew.
const maxWitnesses = 5

// witness is what a client was sent last of a key.
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

// note remembers what the client is sent of a key.
func (w *watched) note(o witness) {
	w.told = slices.DeleteFunc(w.told, func(was witness) bool { return was.key == o.key })
	at, _ := slices.BinarySearchFunc(w.told, o.rev, func(was witness, rev uint64) int { return cmp.Compare(rev, was.rev) })
	if at < maxWitnesses {
		w.told = slices.Insert(w.told, at, o)
		w.told = w.told[:min(len(w.told), maxWitnesses)]
	}
}

// place is where the client continues with one machine.
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

// idOf is where a reconnect continues. The change of one key may overtake that of another which waits, so that its
// revision says nothing about other keys: the id is the mark, and not the revision.
func idOf(all []*watched) string {
	if !all[0].ofAll {
		return all[0].place()
	}
	parts := make([]string, len(all))
	for i, one := range all {
		parts[i] = one.m.Name + ":" + one.place()
	}
	return strings.Join(parts, ",")
}

// parsePlace reads a place. A number alone, such as the revision of a list, is taken as it is.
func (w *watched) parsePlace(place string) bool {
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

// newest is the latest revision that the client was sent: an index below it is older than what the client has.
func (w *watched) newest() uint64 {
	rev := w.after
	for _, o := range w.names {
		rev = max(rev, o.rev)
	}
	return rev
}

// proven sets after to the last revision that the store is known to share with the client. It is false when the client may have
// something that would not be replaced by what is sent after that, so that it has to drop everything.
func (w *watched) proven(ix *index.Index) bool {
	switch {
	case w.after == 0 && len(w.names) == 0:
		return true
	case len(w.filter.States) > 0:
		return false // it is not known which entities have left these states meanwhile
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
			w.kept = append(w.kept, o)
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
