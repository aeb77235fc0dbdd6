package proxy

import (
	"cmp"
	"context"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Route is where requests for a host go.
type Route struct {
	Host     string
	Backends []Backend
	Health   Health
}

// Backend is a server of an application, over HTTP.
type Backend struct {
	Address string // host:port
	Weight  int    // share of the requests; 0 takes no new ones
	OwnHost bool   // it gets requests with the host of its address, in place of the one that was asked for, which is in X-Forwarded-Host
}

// Health is how backends are checked: by a GET that is answered with a status below 400. Without a path there are no checks.
type Health struct {
	Path   string
	Every  time.Duration // 0 is 10 s
	Within time.Duration // 0 is 2 s
}

// Options of a proxy. The zero value is useful.
type Options struct {
	Log *slog.Logger // nil is none

	// Dial connects to a backend; nil is the dialer of package net. Whoever lets others name addresses guards it.
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	DialWithin   time.Duration // 0 is 2 s
	AnswerWithin time.Duration // until the header of an answer is there; 0 is no limit
	Idle         int           // connections that are kept for each backend; 0 is 128
	IdleFor      time.Duration // how long; 0 is 90 s
	Drain        time.Duration // how long upgraded connections of a drained backend may go on; 0 is 30 s

	// Admit is asked before a request of a client's address is sent on to a host of the table: with an error it is answered with 503. leave is called when it, or what it was upgraded to, has ended. Nil admits all.
	Admit  func(address, host string) (leave func(), err error)
	Stalls time.Duration // how long a body may stand still while it is awaited of a client, or sent to one; 0 is 60 s

	// Of [Proxy.Server].
	MaxHeader    int           // bytes of a request's header; 0 is 64 KiB
	HeaderWithin time.Duration // to read it; 0 is 10 s
}

// Proxy passes requests on to backends. It is safe for concurrent use.
type Proxy struct {
	options   Options
	log       *slog.Logger
	errors    *log.Logger // of net/http, whose lines are about single clients
	transport *http.Transport
	buffers   buffers
	unknown   counts // requests for hosts that are not in the table
	changed   chan struct{}

	table atomic.Pointer[table]

	mu       sync.Mutex
	backends map[place]*backend // those of the table, and those that still have requests
	ended    bool
}

// table is by host. Nothing of it changes but what sites and backends count.
type table map[string]*site

// place is what makes a backend the same one in two tables.
type place struct{ host, address string }

func (o Options) filled() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.DialWithin, o.IdleFor, o.Drain = cmp.Or(o.DialWithin, 2*time.Second), cmp.Or(o.IdleFor, 90*time.Second), cmp.Or(o.Drain, 30*time.Second)
	o.Idle, o.MaxHeader, o.HeaderWithin = cmp.Or(o.Idle, 128), cmp.Or(o.MaxHeader, 64<<10), cmp.Or(o.HeaderWithin, 10*time.Second)
	o.Stalls = cmp.Or(o.Stalls, time.Minute)
	if o.Admit == nil {
		o.Admit = func(string, string) (func(), error) { return func() {}, nil }
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return o
}

// New is a proxy with an empty table.
func New(o Options) *Proxy {
	o = o.filled()
	p := &Proxy{
		options: o, log: o.Log, errors: slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		changed: make(chan struct{}, 1), backends: make(map[place]*backend),
	}
	p.transport = &http.Transport{
		DialContext:         p.dial,
		DisableCompression:  true, // what is sent is passed on as it is
		MaxIdleConnsPerHost: o.Idle, IdleConnTimeout: o.IdleFor,
		ResponseHeaderTimeout: o.AnswerWithin, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 256 << 10,
	}
	p.table.Store(&table{})
	return p
}

func (p *Proxy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.DialWithin)
	defer cancel()
	c, err := p.options.Dial(ctx, network, address)
	if err != nil {
		return nil, &unreachable{err}
	}
	return c, nil
}

// streams is how many requests one connection of HTTP/2 may have at a time: a browser asks for no more of one page.
const streams = 32

// Server is one for the proxy with its limits. Bodies may be large, and take long, but not stand still for longer than Options.Stalls.
func (p *Proxy) Server() *http.Server {
	return &http.Server{
		Handler: p, MaxHeaderBytes: p.options.MaxHeader, ReadHeaderTimeout: p.options.HeaderWithin, IdleTimeout: 2 * time.Minute, ErrorLog: p.errors,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams},
	}
}

// Set replaces the table. Of two routes for a host the later one counts.
func (p *Proxy) Set(routes []Route) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, next, live := *p.table.Load(), make(table, len(routes)), make(map[*backend]bool)
	for _, r := range routes {
		host := normal(r.Host)
		s := &site{host: host, health: r.Health.filled(), counts: new(counts), turns: make([]int, len(r.Backends))}
		for _, b := range r.Backends {
			at := p.backend(place{host, b.Address})
			at.ownHost.Store(b.OwnHost)
			s.backends = append(s.backends, share{backend: at, weight: max(b.Weight, 0)})
		}
		if old := before[host]; old != nil {
			if s.counts = old.counts; s.health == old.health && slices.Equal(s.backends, old.backends) {
				s = old // with its turns, which would begin with the heaviest backend again
			}
		}
		next[host] = s
	}
	for _, s := range next {
		for _, b := range s.backends {
			live[b.backend] = live[b.backend] || b.weight > 0
		}
	}
	p.table.Store(&next)
	for at, b := range p.backends {
		_, listed := live[b]
		switch {
		case live[b]:
			b.stay(p.ended)
		case !listed && b.inFlight.Load() == 0:
			delete(p.backends, at)
		default:
			b.leave(p.options.Drain)
		}
	}
	select {
	case p.changed <- struct{}{}:
	default: // it is going to look anyway
	}
}

// backend is the one at a place. The caller holds the lock.
func (p *Proxy) backend(at place) *backend {
	b := p.backends[at]
	if b == nil {
		b = &backend{place: at, ended: p.ended, open: make(map[*exchange]func()), waits: make(map[*exchange]struct{})}
		p.backends[at] = b
	}
	return b
}

// Serves reports whether the table has a host, in any spelling and with or without a port.
func (p *Proxy) Serves(host string) bool { return p.site(host) != nil }

// site is nil for a host that is not in the table.
func (p *Proxy) site(host string) *site {
	t := *p.table.Load()
	if s := t[host]; s != nil { // as most clients say it
		return s
	}
	return t[normal(host)]
}

// normal is a host in lower case, without port and without the dot of the root.
func normal(host string) string {
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:at]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Status is what a backend stands at.
type Status struct {
	Host, Address string
	Weight        int
	Gone          bool   // it is not in the table any more, and still has requests
	Healthy       bool   // requests go there
	Problem       string // why not, as far as it is known
	InFlight      int    // requests that have not ended, with those that were upgraded
	Upgraded      int
}

// Status tells of all backends of the table, and of those that left it with requests that have not ended. After Set it misses no request that the table before has sent.
func (p *Proxy) Status() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Status
	listed := make(map[*backend]bool)
	for _, s := range *p.table.Load() {
		for _, b := range s.backends {
			listed[b.backend] = true
			all = append(all, b.status(b.weight))
		}
	}
	for at, b := range p.backends {
		switch {
		case listed[b]:
		case b.inFlight.Load() == 0:
			delete(p.backends, at)
		default:
			s := b.status(0)
			s.Gone = true
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Address, b.Address))
	})
	return all
}

// Count is what became of requests since their backend came into the table. No number falls, so that the difference of two is of the time between them.
type Count struct {
	Asked    int64 // that were its to answer: it has begun to, has failed to, or should have by now
	Failures int64 // it has failed: with a status of 500 or above, without any answer, or without taking the connection
	Hung     int64 // of Asked, that it did not begin to answer within Health.Within, whether it did later, they still wait, or their client has left
}

// Traffic is what a backend was asked.
func (p *Proxy) Traffic(host, address string) Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.backends[place{normal(host), address}]
	if b == nil {
		return Count{}
	}
	return b.traffic(time.Now())
}

// InFlight is how many requests of all names an address has that have not ended, with those that were upgraded. After Set it misses none that the table before has sent.
func (p *Proxy) InFlight(address string) (all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, b := range p.backends {
		if at.address == address {
			all += int(b.inFlight.Load())
		}
	}
	return all
}

// end closes what is upgraded, now and from now on.
func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, b := range p.backends {
		b.mu.Lock()
		b.end()
		b.mu.Unlock()
	}
	p.transport.CloseIdleConnections()
}
