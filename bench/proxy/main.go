// Command proxy measures the reverse proxy in front of tenants (providers/domain/proxy) beside a bare httputil.ReverseProxy: both pass requests on to the same backend, with
// the same connections, in turn. Client, proxies and backend are in this process, so what counts is the ratio. It ends with an error if a request fails.
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
	bare, stop, err := serve(&http.Server{Handler: single})
	if err != nil {
		return err
	}
	defer stop()

	fmt.Printf("%-24s %10s %10s %8s\n", "", "bare", "proxy", "ratio")
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, size := range sizes {
			var rates [2][]float64
			var ratios []float64
			for turn := range runs {
				var of [2]float64
				for n := range of {
					i := (n + turn) % len(of) // who is first changes
					if of[i], err = load(method, [...]string{bare, ours}[i], size, clients, each, body[:100]); err != nil {
						return err
					}
					rates[i] = append(rates[i], of[i])
				}
				ratios = append(ratios, of[1]/of[0])
			}
			fmt.Printf("%-24s %8.0f/s %8.0f/s %8.2f\n", fmt.Sprintf("%s, %d bytes", method, size), median(rates[0]), median(rates[1]), median(ratios))
		}
	}
	return nil
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func serve(s *http.Server) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() { _ = s.Serve(l) }()
	return l.Addr().String(), func() { _ = s.Close() }, nil
}

// load sends requests for a while, and returns how many were answered in a second.
func load(method, address string, size, clients int, each time.Duration, body []byte) (float64, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), each)
	defer cancel()
	var all sync.WaitGroup
	var done atomic.Int64
	failures := make(chan error, clients)
	began := time.Now()
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
		return float64(done.Load()) / time.Since(began).Seconds(), nil
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
