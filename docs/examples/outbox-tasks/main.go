// Command outbox-tasks queues a task for each event of an outbox: whoever appends an event greeting.wanted in a transaction of his database has a task queued if
// that is committed, and none if not. It ends with Ctrl-C.
//
//	go run ./docs/examples/outbox-tasks [nats://127.0.0.1:4222]
//
// The task is named after the event, so that an event which comes again asks for nothing new, however late.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	repository = "greetings"
	wanted     = "outbox.*.*.greeting.wanted" // of whatever aggregate
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	url := nats.DefaultURL
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(ctx, url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := ask(ctx, nc, "repository.default."+repository+".create", repository, map[string]any{}); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// Durable: what is committed while this program is away is queued when it is back.
	events, err := js.CreateOrUpdateConsumer(ctx, "OUTBOX", jetstream.ConsumerConfig{Durable: "greetings", FilterSubject: wanted, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 64})
	if err != nil {
		return err
	}
	all, err := events.Messages()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, all.Stop)()
	for {
		m, err := all.Next()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if err := queue(ctx, nc, m); err != nil { // it comes again
			fmt.Fprintln(os.Stderr, err)
			_ = m.NakWithDelay(time.Second)
			continue
		}
		_ = m.Ack() // where this is lost, the event comes again, and its task is there
	}
}

func queue(ctx context.Context, nc *nats.Conn, m jetstream.Msg) error {
	id := m.Headers().Get("ce-id")
	return ask(ctx, nc, "task.default."+repository+"."+id+".create", id, map[string]any{
		"type": "greet", "pool": "greeters", "params": json.RawMessage(m.Data()), "run": true,
	})
}

// ask sends a command under an id, and is content when what it is to make is there.
func ask(ctx context.Context, nc *nats.Conn, command, id string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	answer, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: "instar.api.cmd." + command, Data: raw, Header: nats.Header{"Nats-Msg-Id": {id}}})
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	var a struct {
		Outcome string `json:"outcome"`
		State   string `json:"state"` // of what is there; empty when nothing is
	}
	if why := answer.Header.Get("Nats-Service-Error"); why != "" {
		return fmt.Errorf("%s: %s", command, why)
	}
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if a.Outcome != "applied" && a.Outcome != "unchanged" && a.State == "" {
		return errors.New(command + ": " + string(answer.Data))
	}
	return nil
}
