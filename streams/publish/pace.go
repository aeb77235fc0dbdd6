package publish

import "time"

// pace chooses how a group is stored, from what both ways took before. An atomic batch on a single-replica file stream
// has a fixed price, because the server makes a whole store for it (3 fsyncs and some 30 calls of the file system); one
// by one each message pays an fsync. Where the one becomes cheaper than the other depends on the disk: between some 10
// and 50 messages on those that were tried.
type pace struct {
	batch  estimate // of a batch
	single estimate // of one message among those stored one by one
}

// estimate is a moving mean of durations.
type estimate struct {
	mean time.Duration
	at   time.Time // of the last measurement
}

// The first guesses, of a slow virtual disk, and what keeps them true.
const (
	firstBatch  = 8 * time.Millisecond
	firstSingle = 500 * time.Microsecond
	weight      = 8                // one measurement moves the mean by an eighth
	outlier     = 4                // times the mean is as much as one measurement counts: disks stall
	fewest      = 4                // fewer messages are never a batch: it takes three fsyncs
	doubtAfter  = 10 * time.Second // since the other way was measured last; as many times later as it is dearer
)

func newPace() pace {
	return pace{batch: estimate{mean: firstBatch}, single: estimate{mean: firstSingle}}
}

// alone reports whether n messages are stored one by one. The way that looks dearer is tried again from time to time, the
// more seldom the dearer it looks: the disk may have changed, or the guess have been wrong.
func (p *pace) alone(n int, now time.Time) bool {
	if n < fewest {
		return true
	}
	single, batch := time.Duration(n)*p.single.mean, p.batch.mean
	if single <= batch {
		return !p.batch.doubted(batch, single, now)
	}
	return p.single.doubted(single, batch, now)
}

// doubted reports whether it is time to measure a way again that looks as dear as that beside the cheaper one.
func (e *estimate) doubted(dear, cheap time.Duration, now time.Time) bool {
	return now.Sub(e.at).Seconds()*float64(cheap) >= doubtAfter.Seconds()*float64(dear)
}

// took notes how long n messages have taken, in a batch or alone.
func (p *pace) took(alone bool, n int, d time.Duration, now time.Time) {
	if alone {
		p.single.note(d/time.Duration(n), now)
		return
	}
	p.batch.note(d, now)
}

func (e *estimate) note(d time.Duration, now time.Time) {
	e.mean = max(e.mean+(min(d, outlier*e.mean)-e.mean)/weight, time.Microsecond)
	e.at = now
}
