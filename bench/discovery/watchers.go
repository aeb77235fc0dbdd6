package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/streams"
)

// watchers measures what watches of all services cost the transitions of others. Their reader is a process of its own, which throws away
// what comes; it shares the processors with the server all the same, so its time is told, too.
func watchers(ctx context.Context, o *options) error {
	const services, clients = 1000, 256
	fmt.Printf("\nwatchers of all %d services, %d clients over NATS\n", services, clients)
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	var conns []*nats.Conn
	for range 8 {
		nc, err := s.connect()
		if err != nil {
			return err
		}
		defer nc.Close()
		conns = append(conns, nc)
	}
	ask := func(n, of int, command, body string) error {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		m, err := conns[n%len(conns)].RequestWithContext(ctx, streams.Names{}.API("cmd", "service", fmt.Sprintf("default.svc-%d", of), command), []byte(body))
		if err == nil && !strings.Contains(string(m.Data), `"outcome":"applied"`) {
			err = fmt.Errorf("%s: %s", command, m.Data)
		}
		return err
	}
	for n := range services {
		if err := ask(n, n, "create", `{"spec":{"image":"hello","env":{"GREETING":"hello"},"port":8080},"labels":{"team":"a"}}`); err != nil {
			return err
		}
	}
	label := func(n int) error { return ask(n, n%services, "label", fmt.Sprintf(`{"labels":{"team":"%d"}}`, n)) }
	for _, n := range o.watchers {
		r, err := read(ctx, s, n)
		if err != nil {
			return err
		}
		err = errors.Join(transitions(s, r, clients, o.duration, label), quietly(ctx, s, label))
		r.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// transitions prints the rate of a closed loop, and what it costs.
func transitions(s *server, r *audience, clients int, duration time.Duration, label func(int) error) error {
	var done, next atomic.Int64
	var over atomic.Bool
	var all sync.WaitGroup
	errs := make([]error, clients)
	for c := range clients {
		all.Go(func() {
			for errs[c] == nil && !over.Load() {
				errs[c] = label(int(next.Add(1)))
				done.Add(1)
			}
		})
	}
	spent := func() (cpu, reading time.Duration, err error) {
		if cpu, err = s.CPU(); err == nil {
			reading, err = r.cpu()
		}
		return cpu, reading, err
	}
	time.Sleep(duration / 4)
	before, begun := done.Load(), time.Now()
	cpu, reading, err := spent()
	time.Sleep(duration)
	n, took := done.Load()-before, time.Since(begun)
	cpuNow, readingNow, err2 := spent()
	over.Store(true)
	all.Wait()
	if err := cmp.Or(append(errs, err, err2)...); err != nil {
		return err
	}
	row(fmt.Sprintf("%d watchers", r.n), fmt.Sprintf("%.0f/s, %s of CPU for each, the reader %.0f %% of a core", float64(n)/took.Seconds(),
		((cpuNow-cpu)/time.Duration(n)).Round(time.Microsecond), 100*(readingNow-reading).Seconds()/took.Seconds()), "")
	return nil
}

// quietly prints how long after it was asked for a single change comes to one more watcher.
func quietly(ctx context.Context, s *server, label func(int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := follow(ctx, s, "/v1/watch?machine=service")
	if err != nil {
		return err
	}
	var lats []time.Duration
	silence := 12 * time.Second // what was held back under load comes first
	for n := range 20 {
		calm := time.NewTimer(silence)
		for waits := true; waits; {
			select {
			case <-events:
				calm.Reset(silence)
			case <-calm.C:
				waits = false
			}
		}
		silence = 300 * time.Millisecond
		asked := time.Now()
		if err := label(1<<30 + n); err != nil {
			return err
		}
		e, ok := <-events
		if !ok {
			return errors.New("the watch ended")
		}
		lats = append(lats, e.at.Sub(asked))
	}
	slices.Sort(lats)
	row("  a change when it is quiet, to a watcher", fmt.Sprintf("p50 %s, p99 %s", quantile(lats, 0.5), quantile(lats, 0.99)), "")
	return nil
}

// audience is a process that has watches open and throws away what comes.
type audience struct {
	*rig.Process
	n int
}

const allWatch = "all watch\n"

// read starts one, and waits until all watches have begun.
func read(ctx context.Context, s *server, n int) (*audience, error) {
	r := &audience{n: n}
	if n == 0 {
		return r, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log := &lockedbuffer.Buffer{}
	if r.Process, err = rig.Start(log, nil, self, "-read", s.http, "-watchers", strconv.Itoa(n)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for log.String() != allWatch {
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.Kill()
			return nil, fmt.Errorf("the watches have not begun within a minute: %s", log)
		}
	}
	return r, nil
}

func (r *audience) cpu() (time.Duration, error) {
	if r.Process == nil {
		return 0, nil
	}
	return r.CPU()
}

func (r *audience) stop() {
	if r.Process != nil {
		r.Kill()
	}
}

// readAll is that process. It ends with a watch.
func readAll(address string, n int) error {
	ended := make(chan error)
	for range n {
		begun := make(chan struct{})
		go func() { ended <- readOne(address, func() { close(begun) }) }()
		select {
		case <-begun:
		case err := <-ended:
			return err
		}
	}
	fmt.Print(allWatch)
	return <-ended
}

func readOne(address string, begun func()) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET /v1/watch?machine=service HTTP/1.1\r\nHost: %s\r\n\r\n", address); err != nil {
		return err
	}
	first := make([]byte, 1024)
	if _, err := c.Read(first); err != nil || !bytes.HasPrefix(first, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("%s %w", first, err)
	}
	begun()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	for {
		var n uintptr
		var errno syscall.Errno
		err := raw.Read(func(fd uintptr) bool { // with MSG_TRUNC the kernel copies nothing (tcp(7))
			n, _, errno = syscall.Syscall6(syscall.SYS_RECVFROM, fd, 0, 1<<20, syscall.MSG_TRUNC|syscall.MSG_DONTWAIT, 0, 0)
			return errno != syscall.EAGAIN
		})
		switch {
		case err != nil:
			return err
		case errno != 0:
			return errno
		case n == 0:
			return errors.New("a watch ended")
		}
	}
}
