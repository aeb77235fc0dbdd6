package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// wire is one connection that asks one thing after the other. It is there because the load generator shares the cores with
// the server: the client of net/http costs a fifth of what the server does for a registration.
type wire struct {
	host string
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

const (
	wireTimeout = 30 * time.Second
	wireBody    = 64 << 10 // no answer is larger
)

// do asks and returns the status and the body, which is valid until the next call.
func (w *wire) do(method, path string, body []byte) (int, []byte, error) {
	status, answer, err := w.try(method, path, body)
	if err != nil {
		w.close()
		return 0, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return status, answer, nil
}

func (w *wire) try(method, path string, body []byte) (int, []byte, error) {
	if w.conn == nil {
		conn, err := net.DialTimeout("tcp", w.host, wireTimeout)
		if err != nil {
			return 0, nil, err
		}
		w.conn, w.in = conn, bufio.NewReader(conn)
	}
	if err := w.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return 0, nil, err
	}
	w.out = fmt.Appendf(w.out[:0], "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, w.host, len(body))
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
		w.close()
	}
	return resp.StatusCode, w.body[:n], nil
}

func (w *wire) close() {
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
}

// wired calls do for 0 to n-1 as parallel does, each worker with a connection of its own.
func wired(ctx context.Context, host string, workers, n int, do func(w *wire, i int) error) error {
	free := make(chan *wire, workers)
	for range workers {
		free <- &wire{host: host}
	}
	defer func() {
		for range workers {
			(<-free).close()
		}
	}()
	return parallel(ctx, workers, n, func(i int) error {
		w := <-free
		defer func() { free <- w }()
		return do(w, i)
	})
}
