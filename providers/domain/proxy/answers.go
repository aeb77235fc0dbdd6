package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
)

var errNone = errors.New("no backend is healthy")

// gone is counted for a request whose client has gone before there was an answer. It is never sent.
const gone = 499

// failed answers a request that no backend has answered.
func (e *exchange) failed(w http.ResponseWriter, r *http.Request, err error) {
	var late net.Error
	switch {
	case errors.Is(err, errNone):
		e.status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
		answer(w, e.status, "No server of this application is healthy at the moment. Try again in a moment.")
	case e.client.stalled.Load():
		e.status = http.StatusRequestTimeout
		answer(w, e.status, "The body of the request stood still for too long.")
	case r.Context().Err() != nil && errors.Is(r.Context().Err(), context.Canceled):
		e.status = gone
		return
	case e.client.broken.Load():
		e.status = http.StatusBadRequest
		answer(w, e.status, "The body of the request could not be read to its end.")
	case errors.As(err, &late) && late.Timeout():
		e.status = http.StatusGatewayTimeout
		answer(w, e.status, "The server of this application did not answer in time.")
	default:
		e.status = http.StatusBadGateway
		answer(w, e.status, "The server of this application broke off before it answered.")
	}
	address := ""
	if e.backend != nil {
		address = e.backend.address
	}
	e.proxy.log.Debug("a request was not answered by a backend", "host", e.site.host, "address", address, "status", e.status, "error", err)
}

// answer writes a problem (RFC 9457).
func answer(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(struct { // of strings, which never fails
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{"about:blank", http.StatusText(status), status, detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may be gone
}
