// Package quorum says which nodes observe an instance beside its owner, and what an observation changes of what is known.
package quorum

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines/instance"
)

// Observation is what a node tells the owner of an instance.
type Observation struct {
	instance.Evidence
	OK bool `json:"ok"`
}

// View is the last observation of a node, and when it came.
type View struct {
	Observation
	At time.Duration
}

// Observes reports whether a node is among the n that rank highest for a key, of those that are live.
func Observes(node string, live []string, key string, n int) bool {
	mine, better := rank(node, key), 0
	for _, other := range live {
		if other != node && rank(other, key) > mine {
			better++
		}
	}
	return better < n
}

// rank is the place of a node for a key, by rendezvous hashing.
func rank(node, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(node + "\x00" + key)) // never fails
	x := h.Sum64()
	x ^= x >> 33 // FNV's last bytes hardly reach its first bits
	x *= 0xff51afd7ed558ccd
	return x ^ x>>33
}

// Same reports whether two lists name the same nodes, in whatever order.
func Same(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Report is the report of what a view changes of an instance that has been in its state since entered, or empty. The table of the instance
// counts the observers.
func Report(state string, d *instance.Known, entered time.Duration, v *View) string {
	fallen, risen := !v.OK && v.Consecutive >= d.Fall(), v.OK && v.Consecutive >= d.Rise()
	switch state {
	case instance.Unknown:
		if risen {
			return instance.ReportPassed
		}
		if fallen {
			return instance.ReportFailed
		}
	case instance.Warming, instance.Healthy:
		known := slices.Contains(d.Failing, v.Observer)
		if fallen && !known {
			return instance.ReportFailed
		}
		if risen && known {
			return instance.ReportPassed
		}
	case instance.Suspect:
		n := d.Suspicion
		if fallen && n != nil && v.Observer != n.By && !slices.Contains(n.Confirmed, v.Observer) {
			return instance.ReportConfirmed
		}
		if risen && v.At > entered {
			return instance.ReportPassed
		}
	case instance.Unhealthy:
		known := slices.Contains(d.Passing, v.Observer)
		if risen && !known {
			return instance.ReportPassed
		}
		if fallen && (known || d.Policy.MaxFailures > 0 && v.Consecutive > d.Retries) {
			return instance.ReportFailed
		}
	}
	return ""
}
