package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// told is one event of a watch with the time at which it arrived.
type told struct {
	at    time.Time
	event string
	data  []byte
}

// follow reads an SSE stream into a channel until ctx ends.
func follow(ctx context.Context, s *server, path string) (<-chan told, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(path), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	events := make(chan told, 1024)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		lines := bufio.NewReaderSize(resp.Body, 64<<10)
		var e told
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			line = strings.TrimRight(line, "\n")
			if name, ok := strings.CutPrefix(line, "event: "); ok {
				e.event = name
			} else if data, ok := strings.CutPrefix(line, "data: "); ok {
				e.data = append(e.data, data...)
			} else if line == "" && e.event != "" {
				if e.at = time.Now(); e.event != "stale" { // it comes every 10 s, also when nothing does
					events <- e
				}
				e = told{}
			}
		}
	}()
	return events, nil
}

// delta is a change as a watcher gets it.
type delta struct {
	Put []struct {
		InstanceID string `json:"instanceId"`
		Weight     int    `json:"weight"`
	} `json:"put"`
	Remove []string `json:"remove"`
}

// watch measures the time from asking for a change to each of 100 watchers' knowing it.
func watch(ctx context.Context, o *options) error {
	const watchers, changes = 100, 200
	fmt.Printf("\n%d watchers of one service\n", watchers)
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	f, _, err := register(ctx, s, crowd{o.perOne, o.perOne, "10m", "10m", nil})
	if err != nil {
		return err
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	beating, cancel := context.WithCancel(ctx)
	defer cancel()
	go f.beat(beating, nc, time.Second)
	if _, err := f.found(ctx); err != nil {
		return err
	}
	cancel()
	watching, end := context.WithCancel(ctx)
	defer end()
	arrived := make([][]time.Time, watchers) // by change
	var ready, all sync.WaitGroup
	errs := make([]error, watchers)
	ready.Add(watchers)
	for w := range watchers {
		arrived[w] = make([]time.Time, changes)
		events, err := follow(watching, s, "/v1/discover/"+f.service(0)+"/watch")
		if err != nil {
			return err
		}
		all.Go(func() { errs[w] = take(events, arrived[w], ready.Done) })
	}
	ready.Wait()
	asked := make([]time.Time, changes)
	for n := range changes {
		asked[n] = time.Now()
		url := fmt.Sprintf("/v1/services/%s/instances/%s/pin", f.service(0), f.ids[n%len(f.ids)])
		if err := call(ctx, http.MethodPost, s.url(url), map[string]int{"weight": 1000 + n}, http.StatusOK, nil); err != nil {
			return err
		}
	}
	all.Wait()
	var lats []time.Duration
	for w := range watchers {
		if errs[w] != nil {
			return errs[w]
		}
		for n := range changes {
			lats = append(lats, arrived[w][n].Sub(asked[n]))
		}
	}
	slices.Sort(lats)
	row("from the request for a change to a watcher", fmt.Sprintf("p50 %s, p99 %s", quantile(lats, 0.5), quantile(lats, 0.99)), "p99 under 15 ms")
	return nil
}

// take notes when each change arrived, told by the weight that it set.
func take(events <-chan told, arrived []time.Time, ready func()) error {
	left := len(arrived)
	timeout := time.After(time.Minute)
	for left > 0 {
		select {
		case e, ok := <-events:
			if !ok {
				return fmt.Errorf("a watch ended with %d changes missing", left)
			}
			if e.event == "snapshot" {
				ready()
				ready = func() {}
				continue
			}
			var d delta
			if err := json.Unmarshal(e.data, &d); err != nil {
				return err
			}
			for _, p := range d.Put {
				if n := p.Weight - 1000; n >= 0 && n < len(arrived) && arrived[n].IsZero() {
					arrived[n] = e.at
					left--
				}
			}
		case <-timeout:
			return fmt.Errorf("%d changes did not arrive within a minute", left)
		}
	}
	return nil
}
