package domains

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bcc94042/instar/server"
)

// drain is how long requests may go on that had begun when the server was told to stop.
const drain = 10 * time.Second

// listener is where requests come in; it is made before certificates are, which have to know its port.
type listener struct {
	net.Listener
	port int
}

func listen(h *server.Host, addr string) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	h.Listens(l.Addr().String())
	port := 0
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		port = at.Port
	}
	return &listener{l, port}, nil
}

// serve serves until the server stops. Its requests end then, or after the time to drain.
func serve(ctx context.Context, h *server.Host, l net.Listener, what string, s *http.Server) {
	s.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	h.Go(ctx, what, func(context.Context) error {
		err := error(nil)
		if s.TLSConfig != nil {
			err = s.ServeTLS(l, "", "")
		} else {
			err = s.Serve(l)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	h.OnStop(what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, drain)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			return s.Close()
		}
		return nil
	})
}

// toHTTPS sends what comes in the clear to https, if the name is served.
func toHTTPS(serves func(string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !serves(host) {
			http.Error(w, "this name is not served here", http.StatusNotFound)
			return
		}
		http.Redirect(w, r, "https://"+host+r.URL.RequestURI(), http.StatusPermanentRedirect)
	})
}
