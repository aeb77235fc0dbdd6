package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/streams"
)

// serve puts the API in front of the world and returns where it is. The micro service runs, too.
func (w *world) serve(ctx context.Context) (url string, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	a, err := api.New(api.Options{Machines: w.machines, Commands: w.commands, NC: w.nc, JS: w.js, Indexes: w.indexes, Open: true})
	if err != nil {
		cancel()
		return "", nil, err
	}
	if err := a.Micro(ctx); err != nil {
		cancel()
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return "", nil, err
	}
	srv := a.HTTPServer("", nil)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	return "http://" + l.Addr().String(), func() error {
		err := a.Close()
		err = errors.Join(err, srv.Close())
		<-done
		cancel()
		return err
	}, nil
}

// overHTTP measures acknowledged durable transitions, asked for over HTTP with kept connections.
func (o *options) overHTTP(ctx context.Context, w *world, clients int) (f figures, err error) {
	defer w.engine(ctx)()
	url, stop, err := w.serve(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := o.create(ctx, w); err != nil {
		return f, err
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConns: clients, MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	return closed(ctx, clients, o.duration, func(ctx context.Context, c, n int) error {
		e := (c + n*clients) % o.entities
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/v1/services/svc-%d/label", url, e), bytes.NewReader(labelBody(n)))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, body)
		}
		return applied(body)
	})
}

// overMicro measures the same through the micro service, by NATS request and reply.
func (o *options) overMicro(ctx context.Context, w *world, clients int) (f figures, err error) {
	defer w.engine(ctx)()
	_, stop, err := w.serve(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := o.create(ctx, w); err != nil {
		return f, err
	}
	return closed(ctx, clients, o.duration, func(ctx context.Context, c, n int) error {
		e := (c + n*clients) % o.entities
		m, err := w.clients[c%len(w.clients)].RequestWithContext(ctx, streams.Names{}.API("cmd", "service", key(e), "label"), labelBody(n))
		if err != nil {
			return err
		}
		return applied(m.Data)
	})
}
