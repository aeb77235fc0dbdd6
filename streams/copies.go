package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// CopyConsumer is durable, on each stream that is copied.
const CopyConsumer = "readers"

// Subjects that cross the border between the account of the control plane and those of users, where there are such.
const (
	ReadersAPI = "$JS.READERS.API"                          // the JetStream of the readers, as the control plane sees it
	OriginAPI  = "$JS.INSTAR.API"                           // the control plane's JetStream, as the other accounts see it
	CopyReset  = "$JS.API.CONSUMER.RESET.*." + CopyConsumer // by which a copy begins where it stands
	CopyFlow   = "$JS.FC.*." + CopyConsumer + ".>"          // by which a copy says how far it is
)

// Copy is where the messages of a stream are told to its copy.
func (n Names) Copy(stream string) string { return n.join("copy", stream) }

// Copies keeps copies of the events, the entities and the views in the account of the readers, under the same names. Who makes
// a consumer says where it delivers, and NATS does not ask whether he may publish there: so consumers for watching are made
// where nothing is the truth. What a reader breaks there is made again.
type Copies struct {
	NC    *nats.Conn // of the control plane
	Plan  Plan
	Every time.Duration // between looks; 0 is a minute
	Log   *slog.Logger
}

// Run looks after the copies until ctx ends. Where no account of readers is, it only looks whether there is one.
func (c *Copies) Run(ctx context.Context) error {
	every := c.Every
	if every <= 0 {
		every = time.Minute
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := c.Once(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("the copies of the readers are not as they should be; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once makes the copies that are missing, and anew those that cannot go on or lack something. Without an account of readers it does nothing.
func (c *Copies) Once(ctx context.Context) error {
	origin, err := JetStream(c.NC)
	if err != nil {
		return err
	}
	readers, err := Readers(ctx, c.NC)
	if readers == nil || err != nil {
		return err
	}
	var errs []error
	for _, config := range c.Plan.copied() {
		if err := c.copy(ctx, origin, readers, config); err != nil {
			errs = append(errs, fmt.Errorf("streams: copy of %s: %w", config.Name, err))
		}
	}
	return errors.Join(errs...)
}

// Readers is the JetStream of the readers' account; nil where there are no readers.
func Readers(ctx context.Context, nc *nats.Conn) (jetstream.JetStream, error) {
	readers, err := jetstream.NewWithAPIPrefix(nc, ReadersAPI, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	switch _, err = readers.AccountInfo(ctx); {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("streams: cannot ask the readers' account: %w", err)
	}
	return readers, nil
}

// copied are the streams that readers may read.
func (p Plan) copied() []jetstream.StreamConfig {
	names := []string{p.Names.Stream(EventStream)}
	for _, b := range slices.Concat(p.States, p.Views) {
		names = append(names, BucketStream(p.Names.Bucket(b)))
	}
	return slices.DeleteFunc(p.Configs(), func(c jetstream.StreamConfig) bool { return !slices.Contains(names, c.Name) })
}

// copy makes a copy that is missing, and makes one anew that cannot go on or lacks something.
func (c *Copies) copy(ctx context.Context, origin, readers jetstream.JetStream, config jetstream.StreamConfig) error {
	from, err := origin.Stream(ctx, config.Name)
	if err != nil {
		return err
	}
	whole, err := c.whole(ctx, from, readers, config)
	if err != nil || whole {
		return err
	}
	if err := readers.DeleteStream(ctx, config.Name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if err := origin.DeleteConsumer(ctx, config.Name, CopyConsumer); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	if _, err := origin.CreatePushConsumer(ctx, config.Name, jetstream.ConsumerConfig{
		Durable: CopyConsumer, Description: "The copy that readers have", DeliverSubject: c.Plan.Names.Copy(config.Name),
		AckPolicy: jetstream.AckFlowControlPolicy, FlowControl: true, IdleHeartbeat: time.Second,
	}); err != nil {
		return err
	}
	_, err = readers.CreateStream(ctx, jetstream.StreamConfig{
		Name: config.Name, Description: config.Description + " (a copy)", Replicas: from.CachedInfo().Config.Replicas,
		Storage: jetstream.FileStorage, MaxMsgsPerSubject: config.MaxMsgsPerSubject, MaxMsgs: -1, MaxBytes: copyBytes(from.CachedInfo()), MaxConsumers: -1,
		AllowMsgTTL: config.AllowMsgTTL, AllowRollup: config.AllowRollup, DenyDelete: config.DenyDelete,
		Mirror: &jetstream.StreamSource{
			Name: config.Name, External: &jetstream.ExternalStream{APIPrefix: OriginAPI},
			Consumer: &jetstream.StreamConsumerSource{Name: CopyConsumer, DeliverSubject: c.Plan.Names.Copy(config.Name)},
		},
	})
	return err
}

// copyBytes bounds the copy of a stream that is bounded. What is removed there is not removed from the copy, and the store that both are
// in is the control plane's: so it has a quarter, the newest.
func copyBytes(of *jetstream.StreamInfo) int64 {
	if of.Config.MaxBytes <= 0 {
		return -1
	}
	return max(of.Config.MaxBytes/4, 1)
}

// whole reports whether a copy is there and goes on. One of a bucket that has come to the end must have every key.
func (c *Copies) whole(ctx context.Context, from jetstream.Stream, readers jetstream.JetStream, config jetstream.StreamConfig) (bool, error) {
	if _, err := from.PushConsumer(ctx, CopyConsumer); err != nil {
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			err = nil
		}
		return false, err
	}
	have, err := readers.Stream(ctx, config.Name)
	if err != nil {
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil
		}
		return false, err
	}
	now := have.CachedInfo()
	after, err := LeadersInfo(ctx, from)
	if err != nil {
		return false, err
	}
	missing := config.MaxMsgsPerSubject == 1 && now.State.LastSeq == after.State.LastSeq && now.State.NumSubjects < after.State.NumSubjects
	if now.Config.Mirror == nil || now.State.LastSeq > after.State.LastSeq || missing {
		return false, nil
	}
	if now.Config.MaxBytes != copyBytes(after) {
		now.Config.MaxBytes = copyBytes(after)
		_, err = readers.UpdateStream(ctx, now.Config)
	}
	return true, err
}
