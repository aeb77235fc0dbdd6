package knativetest

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// watch sends the events after a resource version, until the client goes or the watch is cut.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, namespace string) {
	q := r.URL.Query()
	if q.Get("sendInitialEvents") == "true" { // as servers that do not know it answer; the client lists then
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", nil)
		return
	}
	at, err := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", "a watch without a resource version is not played here", nil)
		return
	}
	wake, cut := make(chan struct{}, 1), make(chan struct{})
	s.mu.Lock()
	if s.watchers == nil {
		s.watchers = map[chan struct{}]chan struct{}{}
	}
	s.watchers[wake] = cut
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, wake)
	}()
	w.Header().Set("Content-Type", "application/json")
	out, flush := json.NewEncoder(w), w.(http.Flusher).Flush
	flush()
	for {
		events, expired := s.after(at, namespace, q.Get("labelSelector"))
		if expired {
			_ = out.Encode(Object{"type": "ERROR", "object": status(http.StatusGone, "Expired", "too old resource version", nil)})
			return
		}
		for _, e := range events {
			if out.Encode(Object{"type": e.kind, "object": e.raw}) != nil {
				return
			}
			at = e.version
		}
		flush()
		select {
		case <-wake:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// after are the events of a watch from a version on, unless they have expired.
func (s *Server) after(at int64, namespace, selector string) (events []event, expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at < s.expired {
		return nil, true
	}
	for _, e := range s.log {
		var o Object
		if e.version <= at || json.Unmarshal(e.raw, &o) != nil {
			continue
		}
		if selected(e.key, o, namespace, selector) {
			events = append(events, e)
		}
	}
	return events, false
}

// Watches is how many watches are under way.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}
