package streams

// Copies of streams for users who may only read. Run, started by server/run.go, calls Once every minute. For each stream that readers may read (copied), copy makes sure that a
// push consumer on it delivers to instar.copy.<stream>, and that a mirror of the same name in the readers' account receives from there. A copy that cannot continue or lacks keys
// (whole) is made again.

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

// Subjects that are imported and exported between the account of the control plane and those of users.
const (
	ReadersAPI = "$JS.READERS.API"                          // the JetStream of the readers, as the control plane sees it
	OriginAPI  = "$JS.INSTAR.API"                           // the control plane's JetStream, as the other accounts see it
	CopyReset  = "$JS.API.CONSUMER.RESET.*." + CopyConsumer // by which a copy continues from where it is
	CopyFlow   = "$JS.FC.*." + CopyConsumer + ".>"          // by which a copy confirms what it has received
)

// Copy is the subject on which the messages of a stream are delivered to its copy.
func (n Names) Copy(stream string) string { return n.join("copy", stream) }

// Copies keeps copies of the events, the entities and the views in the account of the readers, under the same names. Whoever creates a consumer says where it delivers, and NATS
// does not check that he may publish there: so readers create their consumers on copies, where they can do no harm. What a reader breaks there is made again.
type Copies struct {
	NC    *nats.Conn    // of the control plane
	Plan  func() Plan   // with the buckets that there are now
	Every time.Duration // between looks; 0 is a minute
	Log   *slog.Logger
}

// Run maintains the copies until ctx ends. While there is no account of readers, it only checks for one.
func (c *Copies) Run(ctx context.Context) error {
	every := c.Every
	if every <= 0 {
		every = time.Minute
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := c.Once(ctx); err != nil && ctx.Err() == nil {
			c.Log.Warn("the readers' copies cannot be set up; retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Once makes the copies that are missing, and makes those again that cannot continue or lack something. Without an account of readers it does nothing.
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
	plan := c.Plan()
	for _, config := range plan.copied() {
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

// copy makes one copy where it is missing, and makes it again where it cannot continue or lacks something.
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
		Durable: CopyConsumer, Description: "The copy that readers have", DeliverSubject: c.Plan().Names.Copy(config.Name),
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
			Consumer: &jetstream.StreamConsumerSource{Name: CopyConsumer, DeliverSubject: c.Plan().Names.Copy(config.Name)},
		},
	})
	return err
}

// copyBytes bounds the copy of a stream that is bounded. What is removed there is not removed from the copy, and both take room from the control plane's store: so the copy has the
// newest quarter.
func copyBytes(of *jetstream.StreamInfo) int64 {
	if of.Config.MaxBytes <= 0 {
		return -1
	}
	return max(of.Config.MaxBytes/4, 1)
}

// whole reports whether a copy exists and continues. That of a bucket must have every key when it has caught up.
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
