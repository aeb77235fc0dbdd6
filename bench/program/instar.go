package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/streams"
)

const (
	ours    = "instar"
	against = "against"
)

// connections are shared by the clients of a server over NATS, as in bench/transitions; over HTTP each has its own.
const connections = 8

// busy is how often each service is changed before anything is measured: what is kept of its last commands is full then.
const busy = 32

var createBody = []byte(`{"spec":{"image":"sim:ok","env":{"GREETING":"hello"},"port":8080},"labels":{"team":"a"}}`)

func labelBody(n int) []byte { return fmt.Appendf(nil, `{"labels":{"team":"%d"}}`, n) }

// settleBody is of a service that the simulated gateway tells 10 ms after the apply, and that is ready 10 ms later.
var settleBody = []byte(`{"spec":{"image":"sim:ok?observe=10ms&ready=10ms"}}`)

// valueSize is how large the stored value of the first service is.
func (c *contender) valueSize() (int, error) {
	if c.value == nil {
		return 0, errors.New("it is not known")
	}
	m, err := c.value()
	if err != nil {
		return 0, err
	}
	var answer struct{ Message struct{ Data []byte } }
	err = json.Unmarshal(m.Data, &answer)
	return len(answer.Message.Data), err
}

// ttl is longer than any run: nothing expires while it is measured.
const ttl = 30 * time.Minute

func serviceOf(e int) string { return fmt.Sprintf("reg-%d", e%200) }

func instanceBody(e int) []byte {
	return fmt.Appendf(nil, `{"serviceName":"%s","nodeAddress":"10.%d.%d.%d:8080","zone":"z1","payload":{"region":"eu","version":"1.0"},"check":{"type":"ttl","ttl":"%s","grace":"10m"}}`, serviceOf(e), e>>16&255, e>>8&255, e&255, ttl)
}

func key(e int) string { return fmt.Sprintf("svc-%d", e) }

// instar starts the program, and creates the services. With an error, the contender is what has to be ended.
func (o *options) instar(ctx context.Context, name, binary, durability string) (c *contender, err error) {
	c = &contender{name: name, busy: busy, answered: make([]atomic.Int64, o.entities)}
	listen, err := o.start(ctx, c, binary, durability)
	if err != nil {
		return c, err
	}
	var conns []*nats.Conn
	for n := range connections {
		nc, err := nats.Connect("nats://" + listen[n%len(listen)])
		if err != nil {
			return c, err
		}
		conns = append(conns, nc)
		c.closers = append(c.closers, nc.Close)
	}
	c.keys = true
	c.label = func(w *rig.Wire, e, n int, idempotency string) error {
		var header []string
		if idempotency != "" {
			header = []string{"Idempotency-Key: " + idempotency}
		}
		return applied(w.Do(http.MethodPost, "/v1/services/"+key(e)+"/label", labelBody(n), header...))
	}
	c.request = func(client, e, n int, idempotency string) error {
		ask := &nats.Msg{Subject: streams.Names{}.API("cmd", "service", "default."+key(e), "label"), Data: labelBody(n)}
		if idempotency != "" {
			ask.Header = nats.Header{streams.HeaderID: {streams.CommandID("service", "default."+key(e), idempotency)}}
		}
		m, err := conns[client%connections].RequestMsg(ask, 30*time.Second)
		if err != nil {
			return err
		}
		return applied(http.StatusOK, m.Data, nil)
	}
	c.settle = func(w *rig.Wire, e int) error {
		status, answer, err := w.Do(http.MethodPost, fmt.Sprintf("/v1/services/new-%d/create?settle=30s", e), settleBody)
		if err == nil && !bytes.Contains(answer, []byte(`"READY"`)) {
			err = fmt.Errorf("a service is not ready: %d %s", status, answer)
		}
		return err
	}
	c.value = func() (*nats.Msg, error) {
		return conns[0].Request("$JS.API.STREAM.MSG.GET.KV_services", []byte(`{"last_by_subj":"$KV.services.default.svc-0"}`), 10*time.Second)
	}
	c.stored = version
	c.register = func(w *rig.Wire, _, e int) error {
		status, answer, err := w.Do(http.MethodPost, "/v1/register", instanceBody(e))
		if err == nil && status != http.StatusAccepted {
			err = fmt.Errorf("a registration was answered %d: %s", status, answer)
		}
		return err
	}
	c.instances = func(w *rig.Wire) (int, error) { return counted(w, "instance", "") }
	if err := c.create(ctx); err != nil {
		return c, err
	}
	c.before, err = c.count(ctx)
	return c, err
}

// start starts the nodes of a contender, and returns where they listen for NATS.
func (o *options) start(ctx context.Context, c *contender, binary, durability string) (listen []string, err error) {
	var at []string // free addresses: of each node for HTTP, NATS and the cluster
	nodes := max(o.nodes, 1)
	for range 3 * nodes {
		a, err := rig.Free()
		if err != nil {
			return nil, err
		}
		at = append(at, a)
	}
	routes := "nats://" + strings.Join(at[2*nodes:], ",nats://")
	for i := range nodes {
		dir, err := os.MkdirTemp(o.dir, c.name)
		if err != nil {
			return nil, err
		}
		args := []string{"serve", "--data", dir, "--http", at[i], "--nats", at[nodes+i], "--durability", durability, "--gateway", "simulated", "--insecure"}
		if nodes > 1 {
			args = append(args, "--cluster", "bench", "--cluster-listen", at[2*nodes+i], "--cluster-routes", routes, "--node", fmt.Sprintf("node-%d", i+1), "--replicas", "3")
		}
		p, err := rig.Start(&lockedbuffer.Buffer{}, nil, binary, args...)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			c.processes = []*rig.Process{p}
		} else {
			c.members = append(c.members, p)
		}
	}
	for i, p := range append(c.processes, c.members...) {
		if err := p.Ready(ctx, "http://"+at[i]+"/readyz"); err != nil {
			return nil, err
		}
	}
	c.http, c.hosts = at[0], at[:nodes]
	return at[nodes : 2*nodes], nil
}

// create makes the services and waits until all are ready: from then on, only labels change them.
func (c *contender) create(ctx context.Context) error {
	err := rig.Wired(ctx, c.http, 64, len(c.answered), func(w *rig.Wire, e int) error {
		return applied(w.Do(http.MethodPost, "/v1/services/"+key(e)+"/create", createBody))
	})
	if err != nil {
		return fmt.Errorf("cannot create the services: %w", err)
	}
	w := &rig.Wire{Host: c.http}
	defer w.Close()
	for ctx.Err() == nil {
		n, err := counted(w, "service", "READY")
		if err != nil || n == len(c.answered) {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
	return fmt.Errorf("the services do not become ready: %w", ctx.Err())
}

// counted reads how many entities of a machine are in a state; in any of them, if it is empty.
func counted(w *rig.Wire, machine, state string) (int, error) {
	var counts struct {
		Total  int            `json:"total"`
		States map[string]int `json:"states"`
	}
	err := read(w, "/v1/machines/"+machine+"/counts", &counts)
	if state == "" {
		return counts.Total, err
	}
	return counts.States[state], err
}

// version reads that of a service: it rises by one with each transition.
func version(w *rig.Wire, e int) (int, error) {
	var s struct {
		Version int `json:"version"`
	}
	err := read(w, "/v1/services/"+key(e), &s)
	return s.Version, err
}

func read(w *rig.Wire, path string, into any) error {
	status, answer, err := w.Do(http.MethodGet, path, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s was answered %d: %s", path, status, answer)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func applied(status int, answer []byte, err error) error {
	if err == nil && (status != http.StatusOK || !bytes.Contains(answer, []byte(`"outcome":"applied"`))) {
		err = fmt.Errorf("not applied: %d %s", status, answer)
	}
	return err
}
