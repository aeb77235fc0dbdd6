package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/disk"
	"github.com/bcc94042/instar/streams"
)

// backup copies everything that is stored, over a connection of its own: what it reads would be before the answers to commands on theirs.
func (a *app) backup(ctx context.Context, w io.Writer) error {
	nc, js, err := a.dial("backup")
	if err != nil {
		return err
	}
	defer nc.Close()
	_, err = a.store(nc, js).Write(ctx, w)
	if errors.Is(err, backup.ErrUnknownBucket) { // whoever asks is told: it is for him to mend
		return problem.New(problem.CodeUnavailable, err.Error())
	}
	return err
}

// store is the installation with the machines of this moment: what is added meanwhile is none of a backup.
func (a *app) store(nc *nats.Conn, js jetstream.JetStream) *backup.Store {
	ms := a.machines.All()
	store := &backup.Store{Shared: a.cfg.NATS.Attached(), NC: nc, JS: js, Plan: a.planOf(ms), Machines: ms, Version: a.opts.Build.Filled().Version, Log: a.log}
	for _, s := range a.cfg.Outbox.All(a.cfg.Mode) {
		store.Others = append(store.Others, cmp.Or(s.Stream, "OUTBOX"))
	}
	var buckets []string
	if a.cfg.Tenants.On() {
		for _, class := range streams.Classes {
			store.Others = append(store.Others, store.Plan.Names.AuditStream(class))
		}
		// With the first, applications know where tenants are before the shared database is asked, and another keyset is noticed.
		buckets = append(buckets, "tenant_runtime", "tenant_resolvers", "tenant_catalogue")
	}
	if a.cfg.Domains.On() {
		buckets = append(buckets, "domain_routes", "certificates", "installation", "storage_keys")
	}
	for _, b := range buckets {
		store.Others = append(store.Others, streams.BucketStream(store.Plan.Names.Bucket(b)))
	}
	return store
}

// Restoration is what [Restore] does.
type Restoration struct {
	From    io.Reader // the backup; nil takes part while another member of the cluster restores
	Without []string  // streams beside those of Instar to leave out

	// Tell is called when it has restored: with what, where, and, when that is full, a line that says so. It is not called without
	// a backup.
	Tell func(done backup.Restored, place, full string) error
}

// Restore fills an empty data directory, or an empty account of the server that the configuration attaches to. A member of a cluster
// waits for the others. The configuration is that of the server which is started afterwards. A [streams.ErrUnfinished] names what has to be removed before the
// next restore; also one that is due to the end of ctx.
func Restore(ctx context.Context, cfg config.Config, opts Options, r Restoration) error {
	ms, err := registry.New(opts.Machines...)
	if err != nil {
		return err
	}
	log, err := NewLog(cfg.Log)
	if err != nil {
		return err
	}
	cfg.NATS.Listen = "" // nobody else is to write there
	a := newApp(cfg, opts, ms, log)
	a.stopped = ctx.Done()
	if r.From == nil {
		err = a.takePart(ctx)
	} else {
		var done backup.Restored
		if done, err = a.restoreFrom(ctx, r.From, r.Without); err != nil {
			err = a.notRestored(done, err)
		} else {
			err = r.Tell(done, a.place(), a.whyFull())
		}
	}
	a.stopping.Store(true)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	return errors.Join(err, a.stopAll(stop, func(string) {}))
}

// place is where everything is stored.
func (a *app) place() string {
	if a.cfg.NATS.Attached() {
		return "the account at " + streams.WithoutSecrets(a.natsURL())
	}
	dir, err := filepath.Abs(a.cfg.Data)
	if err != nil {
		return a.cfg.Data
	}
	return dir
}

// notRestored says beside an error what a restore has left where, and whether there was room for it.
func (a *app) notRestored(done backup.Restored, err error) error {
	why := a.whyFull()
	if why != "" {
		why = "\n" + why
	}
	at, left := a.place(), "its streams and those of its outboxes from "+a.place()
	if !a.cfg.NATS.Attached() {
		at = filepath.Join(a.place(), "nats")
		left = at
	}
	switch {
	case done.Begun:
		return fmt.Errorf("%w: %w\nwhat it has left is taken by no server: remove %s before the next restore%s", streams.ErrUnfinished, err, left, why)
	case errors.Is(err, streams.ErrOccupied):
		return fmt.Errorf("%w\nit is in %s", err, at)
	}
	return err
}

// whyFull says that a server would refuse all commands where it was restored, and why; or nothing.
func (a *app) whyFull() string {
	ask, cancel := context.WithTimeout(context.Background(), 3*time.Second) // it is also told when the command was ended
	defer cancel()
	if a.deps.JS == nil { // it has not come so far
		return ""
	}
	if room, err := a.room(ask, a.deps.JS); err == nil && room.Full() {
		return "until there is room every server refuses all commands: " + disk.Full(room)
	}
	return ""
}

// restoreFrom makes the streams of an empty place out of a backup. A member of a cluster waits for the others.
func (a *app) restoreFrom(ctx context.Context, from io.Reader, without []string) (backup.Restored, error) {
	nc, js, err := a.openNATS()
	if err != nil {
		return backup.Restored{}, err
	}
	a.deps.JS = js
	store := a.store(nc, js)
	store.Without = without
	writes, _, err := a.connect("restore") // beside the one that reads
	if err != nil {
		return backup.Restored{}, err
	}
	if store.Appender, _, err = a.writers(writes, a.basis.Names); err != nil {
		return backup.Restored{}, err
	}
	if store.Shared {
		if err := noneRuns(nc, a.basis.Names.Prefix); err != nil {
			return backup.Restored{}, err
		}
	}
	store.Await = a.awaiting(nc, js)
	done, err := store.Restore(ctx, from)
	if err == nil && a.cfg.Cluster.On() {
		linger(ctx)
	}
	return done, err
}

// noneRuns looks at who answers within a second: servers of other installations may run in the same account.
func noneRuns(nc *nats.Conn, prefix string) error {
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return fmt.Errorf("cannot ask for servers that run: %w", err)
	}
	defer func() { _ = inbox.Unsubscribe() }() // it goes with the connection at the latest
	if err := nc.PublishRequest("$SRV.PING.instar", inbox.Subject, nil); err != nil {
		return fmt.Errorf("cannot ask for servers that run: %w", err)
	}
	for until := time.Now().Add(time.Second); ; {
		m, err := inbox.NextMsg(time.Until(until))
		if err != nil { // nobody has a subscription, or nobody else answers
			return nil
		}
		var it micro.Ping
		_ = json.Unmarshal(m.Data, &it) // one that cannot be told apart may be of this installation
		if of := it.Metadata["prefix"]; of == "" || of == prefix {
			return errors.New("a server of this installation runs: stop all of them, what they do meanwhile is none of the backup")
		}
	}
}

// awaiting does something at once, or in a cluster as soon as the other members are there.
func (a *app) awaiting(nc *nats.Conn, js jetstream.JetStream) func(context.Context, func(context.Context) error) error {
	return func(ctx context.Context, do func(context.Context) error) error {
		if !a.cfg.Cluster.On() {
			return do(ctx)
		}
		return streams.AwaitLeader(ctx, nc, js, a.log, do)
	}
}

// takePart is a member of a cluster while another one restores it.
func (a *app) takePart(ctx context.Context) error {
	nc, js, err := a.openNATS()
	if err != nil {
		return err
	}
	said, told := streams.Ended, time.Time{}
	for {
		var now streams.Restoring
		if err := streams.AwaitLeader(ctx, nc, js, a.log, func(ctx context.Context) (err error) {
			now, err = a.plan().Restoring(ctx, js)
			return err
		}); err != nil {
			return err
		}
		if now == streams.Ended {
			linger(ctx)
			return nil
		}
		if now != said || time.Since(told) > 10*time.Second {
			said, told = now, time.Now()
			a.log.Info(waitsFor[now])
		}
		if !wait.For(ctx, 250*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// waitsFor is what a member of a cluster says that takes part in a restore.
var waitsFor = map[streams.Restoring]string{
	streams.NotBegun: "waiting for the member that restores: instar restore PLACE at one of them",
	streams.Begun:    "another member restores, or has left a restore that did not end; waiting until it has ended",
}

// linger lets the other members see that it is done: they need a majority for that.
func linger(ctx context.Context) { wait.For(ctx, 5*time.Second) }
