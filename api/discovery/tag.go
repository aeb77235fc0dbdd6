package discovery

import (
	"encoding/binary"
	"hash/fnv"
	"strconv"
)

// tag tells lists of endpoints apart. Lists of one tag are the same, whichever node has made them, and in whichever life of
// the store; while weights warm up, each node has lists of its own moments. Revisions do not tell that: after the loss of its end, or a restore, the bucket gives them out again.
func tag(endpoints []Endpoint, protected bool) string {
	h := fnv.New64a()
	b := strconv.AppendBool(make([]byte, 0, 256), protected)
	for i := range endpoints {
		e := &endpoints[i]
		b = append(append(append(append(b, e.InstanceID...), 0), e.NodeAddress...), 0)
		b = append(append(b, e.State...), 0)
		for _, n := range [...]uint64{e.Generation, e.Revision, uint64(e.Weight), uint64(e.Since.UnixNano())} { // as bits
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		_, _ = h.Write(b) // never fails
		b = b[:0]
	}
	_, _ = h.Write(b)
	return strconv.FormatUint(h.Sum64(), 36)
}

// Tag is the tag of what is found and of whether the service is in self-preservation. It is written once.
func (sn *Snapshot) Tag() string {
	if t := sn.tag.Load(); t != nil {
		return *t
	}
	t := tag(sn.Found, sn.Protected)
	sn.tag.Store(&t)
	return t
}

// Tag is the tag of the answer: answers of one tag have the same endpoints, in any order of the store's history.
func (r *Result) Tag() string {
	if r.whole != nil {
		return r.whole.Tag()
	}
	return tag(r.Endpoints, r.Protected)
}
