package api

import "github.com/danielgtaylor/huma/v2"

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

// CheckToken checks one token as New does.
func CheckToken(t Token) error {
	_, err := t.check()
	return err
}

// RegisterWithoutRole adds an operation that declares no role.
func (s *Server) RegisterWithoutRole() error {
	return s.register(&route{op: huma.Operation{Method: "GET", Path: "/v1/secret"}})
}

// RegisterTwice adds an operation that is there already.
func (s *Server) RegisterTwice() error {
	return s.register(&route{role: Read, op: huma.Operation{Method: "GET", Path: "/v1/machines"}})
}

// RegisterPanic adds an operation that panics, before or after it has begun to answer.
func (s *Server) RegisterPanic() error {
	for path, begin := range map[string]bool{"/boom": false, "/late": true} {
		if err := s.register(&route{open: true, op: huma.Operation{Method: "GET", Path: path, Hidden: true}, serve: func(q *request) error {
			if begin {
				_, _ = q.w.Write([]byte("half"))
			}
			panic("secret dsn")
		}}); err != nil {
			return err
		}
	}
	return nil
}
