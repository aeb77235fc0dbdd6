package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// emit publishes what the restored entities of a machine have to: events that their stream lacks, the tasks that they wait for, and their
// timers.
func (r *restorer) emit(ctx context.Context, of *machines.Machine) error {
	bucket := r.s.Plan.Names.Bucket(of.Plural)
	err := each(ctx, r.s.JS, streams.BucketStream(bucket), func(m jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
		_, key, _ := streams.BucketKey(m.Subject())
		e, err := of.DecodeAt(key, m.Data())
		if err != nil {
			return true, nil // it is parked, and was told
		}
		known := r.known[of.Name+"/"+key]
		if known == nil {
			return true, nil
		}
		last := known.last
		for _, o := range append(e.Outbox, of.Pending(e)...) {
			switch {
			case o.Kind == machines.KindTimer:
				r.done.Timers++
			case o.Kind == machines.KindEffect:
				r.done.Tasks++
			case o.Refusal != 0 && !known.untold[o.ID(of.Name, key)], o.Refusal == 0 && !last.before(place{o.Version, uint64(o.N)}): // it counts
				continue
			default:
				r.done.Events++
			}
			write, err := consumers.WriteOf(r.s.Plan.Names, of, key, e.Birth, &o)
			switch {
			case err != nil:
			case o.Kind == machines.KindEvent:
				err = r.event(ctx, r.s.Plan.Names.EventsOf(of.Name, key), write.Msg)
			default:
				err = r.append(ctx, write, nil)
			}
			if err != nil {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return r.flush(ctx)
}

// resumed is a consumer of others, which goes on behind what it had done. What it had done out of order comes again.
type resumed struct {
	Consumer
	stream string
	placed bool
}

// place makes a consumer that goes on with what its stream gets next. It has the configuration that its owner knows, or could not be opened by that: so one that begins with
// what there is begins behind that by itself, as the rest is not there yet, and one that begins at a place of then is sent on.
func (r *restorer) place(ctx context.Context, c *resumed) error {
	c.placed = true
	config := c.Config
	config.Replicas = 0 // those of its stream
	err := steady(ctx, func(ctx context.Context) (err error) {
		if config.DeliverSubject != "" {
			_, err = r.s.JS.CreateOrUpdatePushConsumer(ctx, c.stream, config)
		} else {
			_, err = r.s.JS.CreateOrUpdateConsumer(ctx, c.stream, config)
		}
		if err == nil && !slices.Contains(beginAtTheEnd, config.DeliverPolicy) {
			_, err = r.s.JS.ResetConsumerToSequence(ctx, c.stream, config.Durable, r.top+1)
		}
		return err
	})
	if refused := new(jetstream.APIError); errors.As(err, &refused) { // everything else can be restored
		r.s.Log.Error("a consumer is left out", "stream", c.stream, "consumer", config.Durable, "error", err)
		r.done.Consumers++
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot make the consumer %s of stream %s: %w", config.Durable, c.stream, err)
	}
	return nil
}

// beginAtTheEnd are those that cannot be sent to a sequence. The last message, or the last of each subject, comes again.
var beginAtTheEnd = []jetstream.DeliverPolicy{jetstream.DeliverNewPolicy, jetstream.DeliverLastPolicy, jetstream.DeliverLastPerSubjectPolicy}
