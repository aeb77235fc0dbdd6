// Command proxy measures the reverse proxy in front of tenants (providers/domain/proxy) beside a bare httputil.ReverseProxy: both pass requests on to the same backend, with
// the same connections and pooled buffers, in turn. Client, proxies and backend are in this process, so what counts is the ratio; CPU is that of all of them for a request. It ends with an
// error if a request fails.
//
//	go -C bench run ./proxy -runs 9
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/providers/domain/proxy"
)

const host = "shop.example.com"

func main() {
	clients := flag.Int("clients", 32, "requests at a time")
	runs := flag.Int("runs", 5, "times that each is measured; the table has the medians")
	each := flag.Duration("duration", 2*time.Second, "how long each time")
	hosts := flag.Int("hosts", 1000, "hosts in the table of the proxy")
	flag.Parse()
	if err := run(*clients, *runs, *hosts, *each); err != nil {
		fmt.Fprintln(os.Stderr, "bench/proxy:", err)
		os.Exit(1)
	}
}

func run(clients, runs, hosts int, each time.Duration) error {
	body := make([]byte, 1<<20)
	sizes := []int{100, 10_000, len(body)}
	backend, stop, err := serve(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		var n int
		_, _ = fmt.Sscan(r.URL.Query().Get("bytes"), &n)
		_, _ = w.Write(body[:n])
	})})
	if err != nil {
		return err
	}
	defer stop()

	p := proxy.New(proxy.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = p.Run(ctx) }()
	routes := []proxy.Route{{Host: host, Backends: []proxy.Backend{{Address: backend, Weight: 1}}}}
	for n := range hosts - 1 {
		routes = append(routes, proxy.Route{Host: fmt.Sprintf("tenant-%d.example.com", n), Backends: routes[0].Backends})
	}
	p.Set(routes)
	ours, stop, err := serve(p.Server())
	if err != nil {
		return err
	}
	defer stop()

	single := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: backend})
	single.Transport = &http.Transport{MaxIdleConnsPerHost: 128, DisableCompression: true}
	single.BufferPool = buffers{}
	bare, stop, err := serve(&http.Server{Handler: single})
	if err != nil {
		return err
	}
	defer stop()

	fmt.Printf("%-24s %10s %10s %7s %10s %10s %7s\n", "", "bare", "proxy", "ratio", "CPU, bare", "proxy", "ratio")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, size := range sizes {
			var of [2]figures
			for turn := range runs {
				for n := range of {
					i := (n + turn) % len(of) // who is first changes
					if err := of[i].measure(method, [...]string{bare, ours}[i], size, clients, each, body[:100]); err != nil {
						return err
					}
				}
			}
			fmt.Printf("%-24s %8.0f/s %8.0f/s %7.2f %7.0f µs %7.0f µs %7.2f\n", fmt.Sprintf("%s, %d bytes", method, size), median(of[0].rates), median(of[1].rates), ratio(of[1].rates, of[0].rates),
				median(of[0].costs), median(of[1].costs), ratio(of[1].costs, of[0].costs))
		}
	}
	return nil
}

// buffers are the bare one's: without them it makes one for each answer.
type buffers struct{}

var pool = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func (buffers) Get() []byte  { return pool.Get().(*[32 << 10]byte)[:] }
func (buffers) Put(b []byte) { pool.Put((*[32 << 10]byte)(b)) }

// figures are those of some runs.
type figures struct {
	rates, costs []float64 // requests per second, and µs of CPU for each
}

func (f *figures) measure(method, address string, size, clients int, each time.Duration, body []byte) error {
	before, err := rig.Self()
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := load(method, address, size, clients, each, body)
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := rig.Self()
	if err != nil {
		return err
	}
	f.rates = append(f.rates, float64(done)/took.Seconds())
	f.costs = append(f.costs, float64((after-before).Microseconds())/float64(max(done, 1)))
	return nil
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// ratio is the median of those of the runs.
func ratio(of, to []float64) float64 {
	var all []float64
	for i := range of {
		all = append(all, of[i]/to[i])
	}
	return median(all)
}

func serve(s *http.Server) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close() }, nil
}

// load sends requests for a while, and returns how many were answered.
func load(method, address string, size, clients int, each time.Duration, body []byte) (int64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), each)
	defer cancel()
	var all sync.WaitGroup
	var done atomic.Int64
	failures := make(chan error, clients)
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := once(transport, method, address, size, body); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failures:
		return 0, err
	default:
		return done.Load(), nil
	}
}

func once(transport *http.Transport, method, address string, size int, body []byte) error {
	var content io.Reader
	if method == http.MethodPost {
		content = bytes.NewReader(body)
	}
	r, err := http.NewRequest(method, fmt.Sprintf("http://%s/?bytes=%d", address, size), content)
	if err != nil {
		return err
	}
	r.Host = host
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(size)) {
		err = fmt.Errorf("%s with %d bytes instead of %d", resp.Status, n, size)
	}
	return err
}
