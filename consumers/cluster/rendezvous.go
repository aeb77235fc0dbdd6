package cluster

import (
	"hash/fnv"
	"strconv"
)

// rendezvous says which of the nodes a partition belongs to: the one with the highest weight of the pair (rendezvous
// hashing). Every node that knows the same names comes to the same answer; a name that comes or goes moves no partition
// but its own. Without nodes it is empty.
func rendezvous(partition int, nodes []string) string {
	best, most := "", uint64(0)
	for _, name := range nodes {
		if w := weight(partition, name); best == "" || w > most || w == most && name < best {
			best, most = name, w
		}
	}
	return best
}

// weight mixes name and partition, so that neighbours of either have nothing in common.
func weight(partition int, name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.Itoa(partition) + "/" + name)) // never fails
	x := h.Sum64()
	x = (x ^ x>>33) * 0xff51afd7ed558ccd // the finalizer of MurmurHash3: FNV's high bits change little with the last bytes
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
