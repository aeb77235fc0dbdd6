package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bcc94042/instar/client"
)

// restart is one instance of the service that is restarted.
type restart struct {
	lease  *client.Lease
	server *http.Server
}

// begin starts an HTTP server on a port of its own and registers it.
func begin(ctx context.Context, registry *client.Client) (*restart, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &restart{}
	r.lease, err = registry.Register(ctx, client.Registration{Service: "rolled", NodeAddress: l.Addr().String(), Check: client.Check{TTL: 3 * time.Second}})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.server = &http.Server{Handler: r.lease.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Millisecond) // some work: the request is under way for a while
		_, _ = io.WriteString(w, "well")
	}))}
	go func() { _ = r.server.Serve(l) }() // ends with end
	return r, nil
}

// end takes the instance out of discovery, and then its server out of service, as a program that was sent SIGTERM does.
func (r *restart) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := r.lease.Drain(ctx)
	return errors.Join(err, r.server.Shutdown(ctx))
}

// rolling restarts all ten instances of a service, one after the other, while eight clients call it.
func rolling(ctx context.Context, o *options) error {
	const instances, callers = 10, 8
	fmt.Printf("\nrolling restart of %d instances behind the client package, %d callers\n", instances, callers)
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	registry := &client.Client{URLs: []string{s.url("")}}
	var running []*restart
	defer func() {
		for _, r := range running {
			r.lease.Close()
			_ = r.server.Close()
		}
	}()
	for range instances {
		r, err := begin(ctx, registry)
		if err != nil {
			return err
		}
		running = append(running, r)
	}
	if _, err := (&fleet{s: s, size: instances, per: instances, name: "rolled"}).found(ctx); err != nil {
		return err
	}
	transport := registry.Transport(nil)
	defer transport.Close()
	web := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	var calls, failed atomic.Int64
	var first atomic.Pointer[error]
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				calls.Add(1)
				if err := post(ctx, web); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	began := time.Now()
	for i := range running {
		next, err := begin(ctx, registry)
		if err == nil {
			err = running[i].end(ctx)
			running[i] = next
		}
		if err != nil {
			close(stop)
			all.Wait()
			return err
		}
	}
	took := time.Since(began)
	close(stop)
	all.Wait()
	row(fmt.Sprintf("failed of %d calls, in %s", calls.Load(), took.Round(100*time.Millisecond)), fmt.Sprint(failed.Load()), "0")
	if e := first.Load(); e != nil {
		return fmt.Errorf("a call failed: %w", *e)
	}
	return nil
}

// post calls with a method that must not be repeated once it may have been processed.
func post(ctx context.Context, web *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://rolled.instar/", nil)
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
