package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

// services of which each has one instance: with so many every partition has some.
const spreadOver = 96

// takeover measures how long instances stay without an owner when a node is killed: the longest time for which a command
// to any of them was not answered.
func takeover(ctx context.Context, o *options) error {
	fmt.Println("\nthree nodes, replicas 3: kill -9 of one at a time")
	nodes, err := trio(o)
	defer func() {
		for _, s := range nodes {
			s.stop()
		}
	}()
	if err != nil {
		return err
	}
	for _, s := range nodes {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	f, _, err := register(ctx, nodes[0], crowd{spreadOver, 1, "10m", "10m", nil})
	if err != nil {
		return err
	}
	for i, s := range nodes[1:] { // the first one stays, to be asked
		leads, err := leaders(ctx, nodes[0], s)
		if err != nil {
			return err
		}
		gap, err := f.gap(ctx, s.stop)
		if err != nil {
			return err
		}
		row(fmt.Sprintf("node %d killed, leader of %d streams: without an owner", i+2, leads), gap.Round(time.Millisecond).String(), "under 5 s, under 10 s with leaders of NATS")
		if i == 0 {
			if nodes[1], err = s.again(); err != nil {
				return err
			}
			if err := nodes[1].ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// trio starts three nodes of one cluster; what has started is returned with an error as well.
func trio(o *options) ([]*server, error) {
	var routes []string
	for range 3 {
		a, err := rig.Free()
		if err != nil {
			return nil, err
		}
		routes = append(routes, a)
	}
	var nodes []*server
	for i, listen := range routes {
		s, err := launch(nil, o, "--cluster", "bench", "--cluster-listen", listen, "--cluster-routes", "nats://"+strings.Join(routes, ",nats://"), "--node", fmt.Sprintf("node-%d", i+1), "--replicas", "3")
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, s)
	}
	return nodes, nil
}

// leaders counts the streams that a node leads.
func leaders(ctx context.Context, ask, of *server) (int, error) {
	nc, err := ask.connect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	own, err := of.connect()
	if err != nil {
		return 0, err
	}
	name := own.ConnectedServerName()
	own.Close()
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LIST", nil)
	if err != nil {
		return 0, err
	}
	return strings.Count(string(m.Data), `"leader":"`+name+`"`), nil
}

// gap kills something while every instance gets commands, and returns the longest time for which one of them got none
// answered, until all are answered again.
func (f *fleet) gap(ctx context.Context, kill func()) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	killed := make(chan struct{})
	var mu sync.Mutex
	var longest time.Duration
	var all sync.WaitGroup
	errs := make([]error, f.size)
	warm := make(chan struct{}, f.size)
	for i := range f.size {
		all.Go(func() {
			answered := time.Now()
			warmed := false
			for n := 0; ; n++ {
				after := false
				select {
				case <-killed:
					after = true
				default:
				}
				one, end := context.WithTimeout(ctx, 500*time.Millisecond)
				err := call(one, http.MethodPost, f.s.url("/v1/services/"+f.service(i)+"/instances/"+f.ids[i]+"/label"), map[string]any{"labels": map[string]string{"n": fmt.Sprint(n)}}, http.StatusOK, nil)
				end()
				if ctx.Err() != nil {
					errs[i] = fmt.Errorf("instance %d has no owner a minute after: %w", i, err)
					return
				}
				if err != nil {
					continue // the next one tells
				}
				mu.Lock()
				if d := time.Since(answered); warmed && d > longest {
					longest = d
				}
				mu.Unlock()
				answered = time.Now()
				if !warmed {
					warmed = true
					warm <- struct{}{}
				}
				if after {
					return
				}
				time.Sleep(20 * time.Millisecond) // a command now and then, not a load
			}
		})
	}
	for range f.size {
		select {
		case <-warm:
		case <-ctx.Done():
			close(killed)
			all.Wait()
			return 0, ctx.Err()
		}
	}
	kill()
	close(killed)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return longest, nil
}
