package main

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
)

// etcdServer starts etcd with what it does by default. A registration is a lease and a key with it, as its users make them.
// With an error, the contender is what has to be ended.
func (o *options) etcdServer(ctx context.Context) (*contender, error) {
	c := &contender{name: "etcd"}
	clients, err := rig.Free()
	if err != nil {
		return c, err
	}
	peers, err := rig.Free()
	if err != nil {
		return c, err
	}
	dir, err := os.MkdirTemp(o.dir, "etcd")
	if err != nil {
		return c, err
	}
	p, err := rig.Start(&lockedbuffer.Buffer{}, nil, o.etcd, "--name", "bench", "--data-dir", dir, "--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers, "--initial-cluster", "bench=http://"+peers)
	if err != nil {
		return c, err
	}
	c.processes = []*rig.Process{p}
	if err := p.Ready(ctx, "http://"+clients+"/health"); err != nil {
		return c, err
	}
	var of [connections]*clientv3.Client
	for i := range of {
		if of[i], err = clientv3.New(clientv3.Config{Endpoints: []string{clients}, DialTimeout: 10 * time.Second}); err != nil {
			return c, err
		}
		c.closers = append(c.closers, func() { _ = of[i].Close() })
	}
	c.register = func(_ *rig.Wire, client, e int) error {
		lease, err := of[client%connections].Grant(ctx, int64(ttl.Seconds()))
		if err != nil {
			return err
		}
		_, err = of[client%connections].Put(ctx, fmt.Sprintf("%s/%x", serviceOf(e), lease.ID), string(instanceBody(e)), clientv3.WithLease(lease.ID))
		return err
	}
	c.instances = func(*rig.Wire) (int, error) {
		found, err := of[0].Get(ctx, "reg-", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return int(found.Count), nil
	}
	return c, nil
}
