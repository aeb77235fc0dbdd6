package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	natsgo "github.com/nats-io/nats.go"
)

// wm is Watermill's forwarder as its documentation wires it: rows in a table of its SQL pub/sub, read by one consumer
// group in batches, published by its JetStream publisher with message ids. Polls are frequent, so that a wait is not
// counted against it.
type wm struct {
	batch int
	topic string
	pool  *pgxpool.Pool
	nc    *natsgo.Conn
	fwd   *forwarder.Forwarder
	done  chan error
}

func (w *wm) name() string { return fmt.Sprintf("Watermill forwarder, batch %d", w.batch) }

func (w *wm) schema() wsql.DefaultPostgreSQLSchema {
	return wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: w.batch}
}

// start runs the forwarder and returns when it waits for rows.
func (w *wm) start(ctx context.Context, e *env) error {
	var err error
	if w.pool, err = pgxpool.New(ctx, e.dsn); err != nil {
		return err
	}
	if w.nc, err = natsgo.Connect(e.url); err != nil {
		return err
	}
	log := watermill.NopLogger{}
	sub, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(w.pool), wsql.SubscriberConfig{
		ConsumerGroup: "forwarder", PollInterval: 5 * time.Millisecond, SchemaAdapter: w.schema(), OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{}, InitializeSchema: true,
	}, log)
	if err != nil {
		return err
	}
	pub, err := nats.NewPublisherWithNatsConn(w.nc, nats.PublisherPublishConfig{
		Marshaler: &nats.NATSMarshaler{}, SubjectCalculator: nats.DefaultSubjectCalculator, JetStream: nats.JetStreamConfig{TrackMsgId: true},
	}, log)
	if err != nil {
		return err
	}
	if w.fwd, err = forwarder.NewForwarder(sub, pub, log, forwarder.Config{ForwarderTopic: w.topic}); err != nil {
		return err
	}
	w.done = make(chan error, 1)
	go func() { w.done <- w.fwd.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-w.fwd.Running():
		return nil
	case err := <-w.done:
		return fmt.Errorf("the forwarder ended: %w", err)
	}
}

func (w *wm) stop() error {
	err := w.fwd.Close()
	<-w.done
	w.nc.Close()
	w.pool.Close()
	return err
}

// write appends rows in a transaction of the application.
func (w *wm) write(_ context.Context, tx pgx.Tx, rows []event) error {
	pub, err := wsql.NewPublisher(wsql.TxFromPgx(tx), wsql.PublisherConfig{SchemaAdapter: w.schema()}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	out := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: w.topic})
	for _, r := range rows {
		m := message.NewMessage(r.id.String(), r.payload)
		if err := out.Publish(w.subject(r), m); err != nil {
			return err
		}
	}
	return nil
}

func (w *wm) subject(r event) string { return "wm.order." + r.aggregate + ".placed" }

func (w *wm) committed() {}

// prepare makes the tables as Watermill makes them, and a stream.
func (w *wm) prepare(ctx context.Context, e *env) error {
	w.topic = "events"
	conn, err := pgx.Connect(ctx, e.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	messages, err := w.schema().SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: w.topic})
	if err != nil {
		return err
	}
	for _, q := range messages {
		if _, err := conn.Exec(ctx, q.Query, q.Args...); err != nil {
			return err
		}
	}
	return e.streamOf(ctx, "WATERMILL", "wm.>")
}

func (w *wm) target() (string, string) { return "WATERMILL", "" }
