package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ErrStop ends a watch without an error when the function of the watcher returns it.
var ErrStop = errors.New("stop")

// Watching is one stream of server-sent events.
type Watching struct {
	Path   string
	Query  url.Values
	LastID string                            // resume after this one
	Each   func(Event) error                 // called in order; an error ends the watch
	Lost   func(err error, in time.Duration) // told before each new try; may be nil
	Quiet  time.Duration                     // a connection that is silent for longer is given up; 35 s when 0
}

// Reset is the event after which the last id means nothing any more.
const Reset = "reset"

// Event is one server-sent event.
type Event struct {
	ID   string
	Name string
	Data []byte
}

// The waits between tries of a watch.
const (
	firstWait = 250 * time.Millisecond
	lastWait  = 5 * time.Second
)

// Watch calls w.Each for every event until ctx ends, Each fails, or the server refuses. A connection that is lost, or
// was never more than a beginning, is opened again after the last event that was seen.
func (c *Client) Watch(ctx context.Context, w Watching) error {
	wait, connected := firstWait, false
	for {
		s := &stream{w: &w, wait: &wait}
		err := c.follow(ctx, s)
		connected = connected || s.connected
		var p *Problem
		switch {
		case errors.Is(s.each, ErrStop):
			return nil
		case s.each != nil && (!errors.As(s.each, &p) || p.Status < 500): // else it has asked what does not answer now
			return s.each
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &p) && p.Status < 500, !connected:
			return err
		}
		if w.Lost != nil {
			w.Lost(err, wait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, lastWait)
	}
}

// stream is one connection of a watch.
type stream struct {
	w         *Watching
	wait      *time.Duration
	connected bool
	each      error // what Each returned
}

func (c *Client) follow(ctx context.Context, s *stream) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.w.LastID != "" {
		header.Set("Last-Event-ID", s.w.LastID)
	}
	resp, err := c.open(ctx, Request{Path: s.w.Path, Query: s.w.Query, Header: header})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	s.connected, *s.wait = true, firstWait
	quiet := s.w.Quiet
	if quiet == 0 {
		quiet = 35 * time.Second // the server sends a comment every 10 s
	}
	silence := time.AfterFunc(quiet, cancel)
	defer silence.Stop()
	return s.read(bufio.NewReader(resp.Body), func() { silence.Reset(quiet) })
}

// read parses events as the HTML standard has them; any line is a sign of life.
func (s *stream) read(r *bufio.Reader, alive func()) error {
	var e Event
	var data []string
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF // an event that is not complete does not count
		}
		if err != nil {
			return err
		}
		alive()
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if len(data) > 0 {
				e.Data = []byte(strings.Join(data, "\n"))
				if s.each = s.w.Each(e); s.each != nil {
					return s.each
				}
			}
			if e.ID != "" {
				s.w.LastID = e.ID
			} else if e.Name == Reset {
				s.w.LastID = ""
			}
			e, data = Event{}, nil
		case field == "event":
			e.Name = value
		case field == "data":
			data = append(data, value)
		case field == "id":
			e.ID = value
		case field == "retry":
			if ms, err := strconv.Atoi(value); err == nil {
				*s.wait = min(time.Duration(ms)*time.Millisecond, lastWait)
			}
		}
	}
}
