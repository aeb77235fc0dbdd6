// Command outbox-tasks queues a task for each event of an outbox: whoever appends an event greeting.wanted in a transaction of his database has a task queued if
// that is committed, and none if not. It ends with Ctrl-C.
//
//	go run ./docs/examples/outbox-tasks [nats://127.0.0.1:4222]
//
// The task is named after the event, so that an event which comes again asks for nothing new, for as long as the task is there. Where it was deleted, or is kept no longer (tasks.keep), and the
// consumer is made anew, it is queued once more. An event that can be no task is said on stderr, and left out.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
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
	if err := prepare(ctx, nc); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var events jetstream.Consumer
	for {
		// Durable: what is committed while this program is away is queued when it is back.
		events, err = js.CreateOrUpdateConsumer(ctx, "OUTBOX", jetstream.ConsumerConfig{Durable: "greetings", FilterSubject: wanted, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 64})
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			break
		}
		fmt.Fprintln(os.Stderr, "waiting for the stream OUTBOX, which the first relay makes")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
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
		switch err := queue(ctx, nc, m); {
		case err == nil:
			_ = m.Ack() // where this is lost, the event comes again, and its task is there
		case errors.Is(err, errNever): // else as many as may be under way would hold up all that come later
			fmt.Fprintln(os.Stderr, "left out:", err)
			_ = m.Term()
		default: // it comes again
			wait, no := time.Second, &refusal{}
			if errors.As(err, &no) {
				wait = max(wait, no.after)
			}
			fmt.Fprintf(os.Stderr, "%v; again in %v\n", err, wait)
			_ = m.NakWithDelay(wait)
			if no.code != "404" { // of all that a task needs only its repository is looked for by name
				continue
			}
			if err := prepare(ctx, nc); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

// prepare has the repository of the tasks be there. It is asked for without an id: an answer of before would not say that it was deleted since. One that is being deleted is waited for.
func prepare(ctx context.Context, nc *nats.Conn) error {
	within, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	now, err := nc.RequestWithContext(within, "instar.api.get.repository.default."+repository, nil)
	if err != nil {
		return err
	}
	var there struct {
		State string `json:"state"`
	}
	if now.Header.Get("Nats-Service-Error-Code") == "" && json.Unmarshal(now.Data, &there) == nil && there.State != "deleted" {
		return nil
	}
	return ask(ctx, nc, "repository.default."+repository+".create", "", map[string]any{})
}

func queue(ctx context.Context, nc *nats.Conn, m jetstream.Msg) error {
	id := m.Headers().Get("ce-id")
	return ask(ctx, nc, "task.default."+repository+"."+id+".create", id, map[string]any{
		"type": "greet", "pool": "greeters", "params": json.RawMessage(m.Data()), "run": true,
	})
}

// errNever says that no other try of a command would be taken.
var errNever = errors.New("it can be no task")

// refusal is an answer by which nothing was stored. Its code is that of HTTP.
type refusal struct {
	why, code string
	after     time.Duration // the least wait before another try
}

func (r *refusal) Error() string { return r.why }

// ask sends a command, under an id if there is one, and is content when what it is to make is there.
func ask(ctx context.Context, nc *nats.Conn, command, id string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", command, errNever, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	m := &nats.Msg{Subject: "instar.api.cmd." + command, Data: raw, Header: nats.Header{}}
	if id != "" {
		m.Header.Set("Nats-Msg-Id", id)
	}
	answer, err := nc.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%s: %w: %w", command, errNever, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	var a struct {
		Outcome string `json:"outcome"`
		State   string `json:"state"` // of what is there; empty when nothing is
		Refusal struct {
			Code string `json:"code"`
		} `json:"refusal"`
	}
	if why := answer.Header.Get("Nats-Service-Error"); why != "" {
		switch code := answer.Header.Get("Nats-Service-Error-Code"); code {
		case "400", "413", "422":
			return fmt.Errorf("%s: %w: %s", command, errNever, why)
		default:
			seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // not all have it
			return fmt.Errorf("%s: %w", command, &refusal{why, code, time.Duration(seconds) * time.Second})
		}
	}
	if err := json.Unmarshal(answer.Data, &a); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if a.Refusal.Code == "validation" {
		return fmt.Errorf("%s: %w: %s", command, errNever, answer.Data)
	}
	if a.Outcome != "applied" && a.Outcome != "unchanged" && a.State == "" {
		return errors.New(command + ": " + string(answer.Data))
	}
	return nil
}
