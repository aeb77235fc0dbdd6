package outbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/streams/outbox"
)

// order is an aggregate: its methods raise events, and nothing is published by them.
type order struct {
	outbox.Recorder
	id string
}

type paid struct {
	Total int `json:"total"`
}

func (paid) EventType() string { return "order.paid" }

func (o *order) Pay(total int) { o.Raise(paid{total}) }

// transaction stands for one of a database, and prints what is appended in it. Its commands change a row each until rows is 0.
type transaction struct {
	pgx.Tx
	rows *int
}

func (t transaction) Exec(_ context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	name, _, _ := strings.Cut(query, "(")
	if t.rows == nil {
		fmt.Println(name, args[0], args[1], args[2], string(args[3].([]byte)))
		return pgconn.NewCommandTag("SELECT 1"), nil
	}
	changed := *t.rows
	*t.rows = 0
	return pgconn.NewCommandTag(fmt.Sprint("INSERT 0 ", changed)), nil
}

// Events leave the aggregate once, when it is saved.
func ExampleRecorder() {
	o := &order{id: "4711"}
	o.Pay(1200)
	for _, e := range o.PullDomainEvents() {
		fmt.Printf("%s %+v version %d\n", e.Event.EventType(), e.Event, e.ID.Version())
	}
	fmt.Println(len(o.PullDomainEvents()))
	// Output:
	// order.paid {Total:1200} version 7
	// 0
}

// The transaction that saves the aggregate appends its events: both happen, or neither.
func ExampleAppender_RecordPulledDomainEvents() {
	var tx pgx.Tx = transaction{} // of pool.Begin
	o := &order{id: "4711"}
	o.Pay(1200)
	of := outbox.DomainEventContext{AggregateType: "order", AggregateID: o.id}
	ids, err := new(outbox.Appender).RecordPulledDomainEvents(context.Background(), tx, o, of)
	fmt.Println(len(ids), err)
	// Output:
	// select "public".outbox_append_bytes order 4711 order.paid {"total":1200}
	// 1 <nil>
}

// What is no message is refused before the database is asked, so the transaction goes on.
func ExampleAppender_Append() {
	var a outbox.Appender
	_, err := a.Append(context.Background(), transaction{},
		outbox.Message{AggregateType: "order", AggregateID: "4711", EventType: "order.paid", Payload: []byte(`{}`)},
		outbox.Message{AggregateType: "order", AggregateID: "47.11", EventType: "order.paid"},
	)
	fmt.Println(err)
	// Output: outbox: message 1: the aggregate's id "47.11" must be 1 to 128 letters, digits, - or _
}

// With RefuseUnknown a misspelt type fails where it is written, and not where somebody waits for it.
func ExampleAppender_types() {
	a := outbox.Appender{Types: &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.RefuseUnknown}}
	_, err := a.Append(context.Background(), transaction{}, outbox.Message{AggregateType: "order", AggregateID: "4711", EventType: "order.payed"})
	fmt.Println(errors.Is(err, outbox.ErrUnknownType))
	// Output: true
}

// A name that ends in ".>" is all types below it, and not the one without.
func ExampleTypes_Known() {
	types := &outbox.Types{Names: []string{"order.paid", "invoice.>"}, Unknown: outbox.ParkUnknown}
	for _, name := range []string{"order.paid", "order.paid.late", "invoice.sent", "invoice"} {
		fmt.Println(name, types.Known(name), "parked:", types.Park(name))
	}
	fmt.Println((*outbox.Types)(nil).Known("anything"))
	// Output:
	// order.paid true parked: false
	// order.paid.late false parked: true
	// invoice.sent true parked: false
	// invoice false parked: true
	// true
}

// Names of headers that mean something to NATS are refused, like payloads that would not fit into a message.
func ExampleMessage_Check() {
	m := outbox.Message{AggregateType: "order", AggregateID: "4711", EventType: "order.paid", Payload: []byte(`{}`)}
	fmt.Println(m.Check())
	m.Headers = map[string]string{"nats-msg-id": "1"}
	fmt.Println(m.Check())
	m.Headers, m.Payload = nil, make([]byte, outbox.MaxPayload+1)
	fmt.Println(m.Check())
	// Output:
	// <nil>
	// the header "nats-msg-id" is for NATS
	// the payload has 1040385 bytes, more than 1040384: put it elsewhere and refer to it
}

// A CloudEvent in structured mode must be of the id and the type that the message says.
func ExampleMessage_Check_structured() {
	m := outbox.Message{
		ID: uuid.MustParse("01940000-0000-7000-8000-000000000001"), AggregateType: "order", AggregateID: "4711", EventType: "order.paid",
		ContentType: "application/cloudevents+json",
		Payload:     []byte(`{"specversion": "1.0", "id": "01940000-0000-7000-8000-000000000001", "source": "/shop", "type": "order.sent"}`),
	}
	fmt.Println(outbox.Structured(m.ContentType), m.Check())
	// Output: true the CloudEvent has the type "order.sent", the message "order.paid"
}

// A delivery that comes again does nothing: the mark is in the transaction of the effect.
func ExampleInbox_Handle() {
	rows := 1
	var tx pgx.Tx = transaction{rows: &rows} // of pool.Begin, for each delivery
	for range 2 {
		first, err := outbox.Inbox{}.Handle(context.Background(), tx, "01940000-0000-7000-8000-000000000001", "mailer", func() error {
			fmt.Println("a mail is noted")
			return nil
		})
		fmt.Println(first, err)
	}
	// Output:
	// a mail is noted
	// true <nil>
	// false <nil>
}

// It is called after the commit. Without it events come at the next poll of the relay, by default within a second.
func ExampleWaker() {
	w := outbox.Waker{Source: "shop", Local: func() { fmt.Println("the relay looks") }}
	fmt.Println(w.Subject())
	w.Wake()
	// Output:
	// instar.outbox.wake.shop
	// the relay looks
}

// A filter must say which rows: an empty one would mean all by mistake. It is refused before the database is asked.
func ExampleFilter() {
	var store outbox.Store // of outbox.Open
	_, err := store.Redrive(context.Background(), outbox.Filter{}, "alice")
	fmt.Println(errors.Is(err, outbox.ErrFilter))
	_, err = store.Discard(context.Background(), outbox.Filter{All: true, EventType: "order.paid"}, "alice")
	fmt.Println(errors.Is(err, outbox.ErrFilter))
	// Output:
	// true
	// true
}

// All events of an aggregate are in one shard, so that one relay has their order.
func ExampleShardOf() {
	first := outbox.ShardOf("order", "4711", 4)
	fmt.Println(outbox.ShardOf("order", "4711", 4) == first)
	seen := map[int]bool{}
	for n := range 100 {
		seen[outbox.ShardOf("order", fmt.Sprint(n), 4)] = true
	}
	fmt.Println(len(seen))
	// Output:
	// true
	// 4
}

// What is not a text is passed on as it is written.
func ExampleReadHeaders() {
	headers := outbox.ReadHeaders([]byte(`{"tenant": "a", "schemaVersion": 2}`))
	raw, _ := json.Marshal(headers)
	fmt.Println(string(raw))
	// Output: {"schemaVersion":"2","tenant":"a"}
}

// A session of the outbox has its schema first; temporary tables come last, so that they hide none.
func ExamplePrepare() {
	config, err := pgx.ParseConfig("postgres://relay@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(outbox.Prepare(config, "events"), config.RuntimeParams["search_path"])
	fmt.Println(outbox.Prepare(config, "public; drop table orders"))
	// Output:
	// <nil> "events", pg_temp
	// outbox: "public; drop table orders" is no name of a schema: letters, digits and _
}

// While a program is developed it may be enough to see what would be published; payloads are not shown.
func ExampleLoggingTransport() {
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	m := outbox.Message{AggregateType: "order", AggregateID: "4711", EventType: "order.paid", Payload: []byte(`{"total": 1200}`)}
	fmt.Println(outbox.LoggingTransport{Log: log}.Publish(context.Background(), &m))
	// Output:
	// level=INFO msg=event id=00000000-0000-0000-0000-000000000000 aggregate=order/4711 type=order.paid bytes=15
	// <nil>
}
