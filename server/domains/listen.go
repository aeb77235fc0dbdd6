package domains

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/bcc94042/instar/api/limits"
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
	l, err := Listen(h, addr)
	if err != nil {
		return nil, err
	}
	port := 0
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		port = at.Port
	}
	return &listener{l, port}, nil
}

// Listen listens for the server, which nothing is to be talked into speaking to by its own proxy.
func Listen(h *server.Host, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("cannot listen on %s: %w: a port below 1024 takes the capability CAP_NET_BIND_SERVICE (docs/operations.md, systemd)", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	h.Listens(l.Addr().String())
	return l, nil
}

// pools bound what clients take of this server: each may need a connection to a target, and the API and the streams need files as well.
type pools struct {
	secure, clear  *limits.Pool // connections, of one address and in all
	requests, site *limits.Pool // requests that have not ended, of one address and in all, and of one domain
}

func newPools() (*pools, error) {
	files, err := server.OpenFiles()
	if err != nil {
		return nil, fmt.Errorf("cannot see how many files may be open: %w", err)
	}
	all := int(min(files/16, 1<<16))
	bound := func(all int) limits.Bound { return limits.Bound{All: all, Each: max(all/8, 16)} }
	return &pools{
		secure:   limits.NewPool("proxy-connections", bound(all)),
		clear:    limits.NewPool("proxy-challenges", bound(max(all/8, 16))),
		requests: limits.NewPool("proxy-requests", limits.Bound{All: 2 * all, Each: max(all/4, 64)}),
		site:     limits.NewPool("proxy-site-requests", limits.Bound{Each: all}),
	}, nil
}

// admit takes a place for a request. A domain has half of them at most: what one application does not answer leaves room for the others.
func (p *pools) admit(address, host string) (leave func(), err error) {
	client, err := p.requests.Take(limits.Client(address))
	if err != nil {
		return nil, err
	}
	site, err := p.site.Take(host)
	if err != nil {
		client()
		return nil, err
	}
	return func() { site(); client() }, nil
}

// Serve serves from when known is closed, at once where it is nil, until the server stops. Its requests end then, or after the time to drain: servers drain one after the
// other, and the rest of the server stops in what they leave of its time.
func Serve(ctx context.Context, h *server.Host, l net.Listener, known <-chan struct{}, what string, s *http.Server, drain time.Duration) {
	s.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	h.Go(ctx, what, func(ctx context.Context) error {
		if known != nil {
			select {
			case <-known:
			case <-ctx.Done():
				return nil
			}
		}
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
