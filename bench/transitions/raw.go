package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// raw measures what JetStream itself does with the operations of a transition, pipelined and batched as the engine
// does: one command publish, one revision-checked KV update, one event with guard, id and life, one ack. Payloads have
// the size of real ones. There is no machine, no JSON, no cache: what remains is the ceiling.
func (o *options) raw(ctx context.Context, w *world, clients int) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	askers, err := newAskers(w, clients)
	if err != nil {
		return figures{}, err
	}
	errs := make(chan error, streams.Partitions)
	for p := range streams.Partitions {
		running.Go(func() {
			if err := rawPartition(ctx, w, p); err != nil && ctx.Err() == nil {
				errs <- err
			}
		})
	}
	f, err := closed(ctx, clients, o.duration, func(ctx context.Context, c, n int) error {
		e := (c + n*clients) % o.entities
		_, err := askers[c].ask(streams.Names{}.Command("service", key(e), "label"), labelBody(n), fmt.Sprintf("r-%d-%d", c, n))
		return err
	})
	select {
	case rawErr := <-errs:
		return f, rawErr
	default:
		return f, err
	}
}

// Sizes of a service that is labelled while it is created, and of the event of a label: those of the other parts.
const (
	rawValue = 1400
	rawEvent = 260
)

type rawEntity struct{ revision, event uint64 }

func rawPartition(ctx context.Context, w *world, p int) error {
	cons, err := w.js.CreateOrUpdateConsumer(ctx, streams.CommandStream, jetstream.ConsumerConfig{
		Durable: fmt.Sprintf("p%02d", p), FilterSubject: streams.Names{}.StoredIn(p), AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 2048, MaxDeliver: -1, MemoryStorage: true,
	})
	if err != nil {
		return err
	}
	incoming := make(chan jetstream.Msg, 512)
	cc, err := cons.Consume(func(m jetstream.Msg) { incoming <- m }, jetstream.PullMaxMessages(256))
	if err != nil {
		return err
	}
	defer cc.Stop()
	value, event := []byte(strings.Repeat("v", rawValue)), []byte(strings.Repeat("e", rawEvent))
	state := map[string]*rawEntity{}
	for {
		var batch []jetstream.Msg
		select {
		case m := <-incoming:
			batch = append(batch, m)
		case <-ctx.Done():
			return nil
		}
		for more := true; more && len(batch) < 256; {
			select {
			case m := <-incoming:
				batch = append(batch, m)
			default:
				more = false
			}
		}
		if err := rawBatch(ctx, w, batch, state, value, event); err != nil {
			return err
		}
	}
}

func rawBatch(ctx context.Context, w *world, batch []jetstream.Msg, state map[string]*rawEntity, value, event []byte) error {
	var writes []publish.Write
	var entities []*rawEntity // beside writes and chains: an entity is written once for all of its commands of a batch
	var chains []*publish.Chain
	for _, m := range batch {
		addr, err := streams.Names{}.ParseStored(m.Subject())
		if err != nil {
			return err
		}
		e := state[addr.Key]
		if e == nil {
			e = &rawEntity{}
			state[addr.Key] = e
		}
		i := slices.Index(entities, e)
		if i < 0 {
			i = len(entities)
			kv := &nats.Msg{Subject: "$KV.services." + addr.Key, Data: value, Header: nats.Header{}}
			streams.Expect(kv, e.revision)
			writes, entities = append(writes, publish.Write{Stream: "KV_services", Msg: kv}), append(entities, e)
			chains = append(chains, &publish.Chain{Filter: streams.Names{}.EventsOf("service", addr.Key), Last: e.event})
		}
		ev := &nats.Msg{Subject: streams.Names{}.Event("service", addr.Key, "service.labels.updated"), Data: event, Header: nats.Header{}}
		streams.CloudEvent(ev, streams.Header(m.Headers(), streams.HeaderID), "/instar", "service.labels.updated", addr.Key, time.Now())
		streams.Keep(ev, 3*365*24*time.Hour)
		chains[i].Msgs = append(chains[i].Msgs, ev)
	}
	for i, r := range w.appender.Append(ctx, writes) {
		if r.Err != nil {
			return r.Err
		}
		entities[i].revision = r.Seq
	}
	for _, m := range batch {
		if err := w.nc.Publish(streams.Header(m.Headers(), streams.HeaderReply), []byte("{}")); err != nil {
			return err
		}
	}
	w.appender.AppendChains(ctx, streams.EventStream, chains)
	for i, c := range chains {
		if c.Err != nil {
			return c.Err
		}
		entities[i].event = c.Last
	}
	for _, m := range batch {
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return nil
}
