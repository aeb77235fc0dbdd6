package tables

import "slices"

// Row is one of the outbox, as it is committed.
type Row struct {
	ID        id
	Aggregate string
	Seq       int64
	State     string // in mode claim, or of one that is parked; empty for the others
	Attempts  int64

	Appended, Committed uint64 // where in the log of the database
}

// Rows are all that are committed and were not discarded, in the order of their numbers.
func (s *Server) Rows() (all []Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	discarded := map[lateKey]bool{}
	for _, t := range s.d.late.all(nil) {
		discarded[t.lateKey] = t.marker == 0
	}
	row := func(e *event, state string, attempts int64) {
		all = append(all, Row{e.id, e.typ + "/" + e.agg, e.seq, state, attempts, e.at, s.d.committed[e.id]})
	}
	for _, l := range s.d.log.all(nil) {
		k := rowKey{l.shard, l.seq}
		if p := s.d.parked.get(nil, k); p != nil && p.id == l.id {
			row(&l.event, p.state, p.attempts)
		} else if !discarded[lateKey{k, l.id}] {
			row(&l.event, "", 0)
		}
	}
	for _, e := range s.d.events.all(nil) {
		row(&e.event, e.status, e.attempts)
	}
	slices.SortFunc(all, func(a, b Row) int { return int(a.Seq - b.Seq) })
	return all
}

// Durable says whether the commit of an event was on disk once.
func (s *Server) Durable(e id) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.durable[e]
}

// Lost says whether the commit of an event was undone once.
func (s *Server) Lost(e id) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.lost[e]
}

// Named is the name of a statement; empty is one that is not known.
func Named(text string) string {
	if s, err := find(text); err == nil {
		return s.name
	}
	return simple(text)
}
