package api

// TakeSeats takes all places of watches until it is undone.
func (s *Server) TakeSeats() func() {
	for range maxWatches {
		s.seats <- struct{}{}
	}
	return func() {
		for range maxWatches {
			<-s.seats
		}
	}
}
