package rig

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Wire is one connection that asks one thing after the other. It is there because the load generator shares the cores with
// the server: the client of net/http costs a fifth of what the server does for a registration.
type Wire struct {
	Host string // address
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

const (
	wireTimeout = 30 * time.Second
	wireBody    = 64 << 10 // none that is measured is larger
)

// Do asks, with further lines of the header, and returns the status and the body, which is valid until the next call.
func (w *Wire) Do(method, path string, body []byte, header ...string) (int, []byte, error) {
	status, answer, err := w.try(method, path, body, header)
	if err != nil {
		w.Close()
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return status, answer, nil
}

func (w *Wire) try(method, path string, body []byte, header []string) (int, []byte, error) {
	if w.conn == nil {
		conn, err := net.DialTimeout("tcp", w.Host, wireTimeout)
		if err != nil {
			return 0, nil, err
		}
		w.conn, w.in = conn, bufio.NewReader(conn)
	}
	if err := w.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return 0, nil, err
	}
	w.out = fmt.Appendf(w.out[:0], "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, path, w.Host, len(body))
	for _, line := range header {
		w.out = append(append(w.out, line...), "\r\n"...)
	}
	w.out = append(w.out, "\r\n"...)
	if _, err := w.conn.Write(append(w.out, body...)); err != nil {
		return 0, nil, err
	}
	resp, err := http.ReadResponse(w.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if w.body == nil {
		w.body = make([]byte, wireBody)
	}
	n, err := io.ReadFull(resp.Body, w.body)
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return 0, nil, fmt.Errorf("the answer is longer than %d bytes, or cannot be read: %w", wireBody, err)
	}
	if resp.Close {
		w.Close()
	}
	return resp.StatusCode, w.body[:n], nil
}

// Close ends the connection; the next call makes another.
func (w *Wire) Close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// Wired calls do for 0 to n-1 from so many workers, each with a connection of its own; the first error ends it.
func Wired(ctx context.Context, host string, workers, n int, do func(w *Wire, i int) error) error {
	free := make(chan *Wire, workers)
	for range workers {
		free <- &Wire{Host: host}
	}
	defer func() {
		for range workers {
			(<-free).Close()
		}
	}()
	return parallel(ctx, workers, n, func(i int) error {
		w := <-free
		defer func() { free <- w }()
		return do(w, i)
	})
}

// parallel calls do for 0 to n-1 from so many goroutines; the first error ends it.
func parallel(ctx context.Context, workers, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(workers, n) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
