package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// data is the data directory, held by this process.
type data struct {
	lock   *os.File
	node   string   // the name of this node, kept with its data
	nonce  string   // of this process
	before []string // of processes before it in this directory, which have ended
}

// claimData makes the directory, locks it and reads or chooses the name of the node. A name that is asked for must be the
// one that is there: NATS takes a member of another name for another member.
func claimData(dir, name string) (data, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return data{}, fmt.Errorf("cannot make the data directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "node.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return data{}, fmt.Errorf("cannot open the data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return data{}, errors.Join(fmt.Errorf("another instar uses the data directory %s: stop it, or choose another one with --data", dir), lock.Close())
	}
	path := filepath.Join(dir, "node")
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(strings.TrimSpace(string(raw))) == 0 {
		if raw = []byte(name); name == "" {
			raw = []byte("node-" + strings.ToLower(nuid.Next()))
		}
		err = os.WriteFile(path, append(raw, '\n'), 0o600)
	}
	if err != nil {
		return data{}, errors.Join(fmt.Errorf("cannot read the name of the node: %w", err), lock.Close())
	}
	d := data{lock: lock, node: strings.TrimSpace(string(raw))}
	if name != "" && name != d.node {
		return data{}, errors.Join(fmt.Errorf("the data directory %s is that of node %q, and --node says %q: use another directory, or the name that it has", dir, d.node, name), lock.Close())
	}
	if d.nonce, d.before, err = incarnate(dir, lock); err != nil {
		return data{}, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d data) close() error { return d.lock.Close() }

// checks are what readiness is made of.
func (a *app) checks(context.Context) []admin.Check {
	link := admin.Check{Name: "nats", OK: a.deps.NC.IsConnected(), Detail: "connection of the engine to " + a.deps.NC.ConnectedServerName()}
	switch {
	case !link.OK:
		link.Detail = a.disconnected()
	case a.deps.NC.AuthRequired() || a.cfg.Mode == config.Dev && !a.cfg.NATS.Attached() || a.server != nil && a.server.ClientURL() == "":
	default:
		link.Warn, link.Detail = true, link.Detail+", which asks nobody who they are: whoever reaches it may do everything"
	}
	list := []admin.Check{link}
	list = append(list, a.nodeChecks()...)
	list = append(list, a.disk.Check())
	for _, more := range each(a, func(h *Host) []func() []admin.Check { return h.checks }) {
		list = append(list, more()...)
	}
	return list
}

// disconnected says what it means that there is no connection to NATS, and what to do.
func (a *app) disconnected() string {
	if a.server != nil {
		return "there is no connection to the embedded NATS server; it is tried again"
	}
	return "NATS at " + streams.WithoutSecrets(a.natsURL()) + " cannot be reached: commands get 503 until it is back. Start that server, or correct nats.url and restart"
}

// letters shows the dead letters to the API.
type letters struct{ publish.DeadLetters }

func (l letters) List(ctx context.Context, after uint64, limit int) ([]admin.DeadLetter, error) {
	list, err := l.DeadLetters.List(ctx, after, limit)
	shown := make([]admin.DeadLetter, len(list))
	for i := range list {
		shown[i] = show(list[i])
	}
	return shown, err
}

func (l letters) Get(ctx context.Context, seq uint64) (admin.DeadLetter, error) {
	d, err := l.DeadLetters.Get(ctx, seq)
	return show(d), err
}

func show(d publish.DeadLetter) admin.DeadLetter {
	return admin.DeadLetter{Seq: d.Seq, Time: d.Time, Consumer: d.Consumer, Machine: d.Machine, Key: d.Key, Subject: d.Subject, Reason: d.Reason, Tries: d.Tries, Actor: streams.Header(d.Header, streams.HeaderActor), Partial: d.Partial, Body: d.Body, RedriveID: d.RedriveID()}
}
