package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
	"github.com/bcc94042/instar/streams/publish"
)

// ours is the relay in one of its modes.
type ours struct {
	mode   outbox.Mode
	batch  int
	silent bool // nobody wakes it: it polls

	nc      *nats.Conn
	r       *relay.Relay
	stopRun context.CancelFunc
	done    chan error
}

func (o *ours) name() string { return fmt.Sprintf("instar %s, batch %d", o.mode, o.batch) }

func (o *ours) prepare(ctx context.Context, e *env) error {
	return outbox.Init(ctx, e.dsn, "", outbox.Settings{Mode: o.mode})
}

// start runs the relay and returns when it has taken its shards.
func (o *ours) start(ctx context.Context, e *env) error {
	var err error
	if o.nc, err = nats.Connect(e.url); err != nil {
		return err
	}
	js, err := jetstream.New(o.nc)
	if err != nil {
		return err
	}
	o.r = &relay.Relay{
		Config: outbox.Config{Name: "bench", DSN: e.dsn, Mode: o.mode, Batch: o.batch}, NC: o.nc, JS: js, Node: "bench", Fsync: e.profile == embedded.Fsync,
	}
	if syncer := e.server.Syncer(); syncer != nil {
		a, err := publish.NewAppender(o.nc, publish.AppenderOptions{Sync: syncer})
		if err != nil {
			return err
		}
		o.r.Fsync, o.r.Sync = false, func(ctx context.Context, stream string) error { return a.Sync(ctx, stream) }
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o.stopRun, o.done = cancel, make(chan error, 1)
	go func() { o.done <- o.r.Run(run) }()
	// It works when it has relayed one row.
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := e.tx(ctx, conn, func(tx pgx.Tx) error { return o.write(ctx, tx, rows(1)) }); err != nil {
		return err
	}
	o.committed()
	stream, markers := o.target()
	if err := e.stored(ctx, stream, markers, 1); err != nil {
		return err
	}
	s, err := e.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject("outbox.>")) // the markers stay
}

func (o *ours) stop() error {
	o.stopRun()
	err := <-o.done
	o.nc.Close()
	return err
}

// write appends rows, up to a thousand in a call.
func (o *ours) write(ctx context.Context, tx pgx.Tx, list []event) error {
	var a outbox.Appender
	for part := range slices.Chunk(list, 1000) {
		messages := make([]outbox.Message, len(part))
		for i, r := range part {
			messages[i] = outbox.Message{ID: r.id, AggregateType: "order", AggregateID: r.aggregate, EventType: "placed", Payload: r.payload}
		}
		if _, err := a.Append(ctx, tx, messages...); err != nil {
			return err
		}
	}
	return nil
}

// committed wakes the relay, as an application does after its commit.
func (o *ours) committed() {
	if !o.silent {
		_ = o.nc.Publish(relay.WakeSubject(streams.Names{}, "bench"), nil) // lossy is fine: it polls, too
		_ = o.nc.Flush()
	}
}

func (o *ours) target() (string, string) { return "OUTBOX", "outbox-pos.>" }

// contenders make each of them anew.
func contenders() []func() contender {
	return []func() contender{
		func() contender { return &wm{batch: 100} },
		func() contender { return &wm{batch: 1000} },
		func() contender { return &ours{mode: outbox.Log, batch: 1000} },
		func() contender { return &ours{mode: outbox.Claim, batch: 100} },
	}
}

// pairs are compared: ours at the same batch as theirs.
var pairs = [][2]string{
	{"instar log, batch 1000", "Watermill forwarder, batch 1000"},
	{"instar claim, batch 100", "Watermill forwarder, batch 100"},
}
