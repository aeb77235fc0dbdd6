package tables

// The log of the database: what was written, how much of it is on disk, and what a crash or a restore leaves.

import (
	"slices"
	"time"
)

// commit is one that was written to the log.
type commit struct {
	at     uint64
	undo   []func()
	events []id
}

// number is a number of the sequence that the log promises not to give out again.
type number struct {
	at uint64
	n  int64
}

// promised is how many numbers the sequence writes to the log in advance.
const promised = 32

// write adds to the log.
func (x *txn) write() {
	x.wrote = true
	x.d.written++
}

// next takes a number of the sequence of outbox_log, which no rollback gives back.
func (x *txn) next() int64 {
	d := x.d
	d.last++
	if d.last > d.logged {
		x.write()
		d.logged = d.last + promised
		d.numbers = append(d.numbers, number{d.written, d.logged})
	}
	return d.last
}

// flush writes the log to disk.
func (d *database) flush(upto uint64) {
	if upto <= d.flushed {
		return
	}
	d.flushed = upto
	for i := len(d.commits) - 1; i >= 0 && d.commits[i].at > d.durableAt; i-- {
		if d.commits[i].at <= upto {
			for _, e := range d.commits[i].events {
				d.durable[e] = true
			}
		}
	}
	d.durableAt = upto
}

// setBack undoes everything that was written after a place of the log. All transactions end.
func (d *database) setBack(to uint64) {
	d.flush(to)
	for _, x := range slices.Clone(d.open) {
		x.rollback()
	}
	for len(d.commits) > 0 && d.commits[len(d.commits)-1].at > to {
		c := d.commits[len(d.commits)-1]
		for _, undo := range slices.Backward(c.undo) {
			undo()
		}
		for _, e := range c.events {
			d.lost[e] = true
		}
		d.commits = d.commits[:len(d.commits)-1]
	}
	for len(d.numbers) > 0 && d.numbers[len(d.numbers)-1].at > to {
		d.numbers = d.numbers[:len(d.numbers)-1]
	}
	d.last, d.logged = 0, 0
	if n := len(d.numbers); n > 0 {
		d.last, d.logged = d.numbers[n-1].n, d.numbers[n-1].n
	}
	d.written, d.flushed, d.durableAt = to, to, to
}

// Crash ends every connection, loses what is pending, and starts again with what the log has on disk: up to what keep says, which is between what was flushed and what was written.
func (s *Server) Crash(keep func(flushed, written uint64) uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.d.setBack(keep(s.d.flushed, s.d.written))
}

// SetBack is Crash with everything undone that was written after a place of the log, whether or not it was on disk: a standby was promoted that had received no more.
func (s *Server) SetBack(to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	s.d.setBack(min(to, s.d.written))
}

// Written is how far the log is written.
func (s *Server) Written() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.written
}

// Flush writes all of the log to disk, as the server does by itself after a while.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.flush(s.d.written)
}

// clock is what clock_timestamp() says.
func (d *database) clock() time.Time { return d.now().UTC().Truncate(time.Microsecond) }
