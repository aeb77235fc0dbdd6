package publish

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// disk is what it takes to store n messages.
type disk struct{ batch, single time.Duration }

func (d disk) store(alone bool, n int) time.Duration {
	if alone {
		return time.Duration(n) * d.single
	}
	return d.batch
}

// On any disk the cheaper way is found, kept, and found again when the disk changes.
func TestThePaceFollowsTheDisk(t *testing.T) {
	t.Parallel()
	for name, disks := range map[string][]disk{
		"slow":              {{20 * time.Millisecond, 400 * time.Microsecond}},
		"fast":              {{3 * time.Millisecond, 30 * time.Microsecond}},
		"becomes faster":    {{20 * time.Millisecond, 400 * time.Microsecond}, {2 * time.Millisecond, 400 * time.Microsecond}},
		"becomes slower":    {{8 * time.Millisecond, 100 * time.Microsecond}, {8 * time.Millisecond, 900 * time.Microsecond}},
		"batches are cheap": {{400 * time.Microsecond, 400 * time.Microsecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, now := newPace(), time.Unix(0, 0)
			for _, d := range disks {
				sizes := []int{1, 8, 20, 30, 60, 200}
				spent, best := time.Duration(0), time.Duration(0)
				for i := range 20_000 {
					n := sizes[i%len(sizes)]
					alone := p.alone(n, now)
					took := d.store(alone, n)
					now = now.Add(took)
					p.took(alone, n, took, now)
					if i > 5_000 { // it has learnt
						spent += took
						best += min(d.store(true, n), max(d.batch, d.store(n < fewest, n)))
					}
				}
				require.Less(t, float64(spent), 1.05*float64(best), "%v instead of %v", spent, best)
			}
		})
	}
}

func TestFewAreNeverABatch(t *testing.T) {
	t.Parallel()
	p := pace{batch: estimate{mean: time.Nanosecond}, single: estimate{mean: time.Second}}
	require.True(t, p.alone(fewest-1, time.Unix(1, 0)))
	require.False(t, p.alone(fewest, time.Unix(1, 0)))
}

// A disk that stalled once is not taken for a slow one for ever.
func TestThePaceForgetsAStall(t *testing.T) {
	t.Parallel()
	d := disk{8 * time.Millisecond, 500 * time.Microsecond}
	for name, stalled := range map[string]bool{"alone": true, "in a batch": false} {
		for _, n := range []int{8, 30, 60, 200} {
			p, now := newPace(), time.Unix(0, 0)
			p.took(stalled, 1, 5*time.Second, now)
			spent, best := time.Duration(0), time.Duration(0)
			for i := range 20_000 {
				alone := p.alone(n, now)
				took := d.store(alone, n)
				now = now.Add(took)
				p.took(alone, n, took, now)
				if i > 10_000 {
					spent, best = spent+took, best+min(d.store(true, n), d.store(false, n))
				}
			}
			require.Less(t, float64(spent), 1.05*float64(best), "%s, %d: %v instead of %v", name, n, spent, best)
		}
	}
}
