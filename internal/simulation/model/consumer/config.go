package consumer

// Configurations of consumers: what the server fills in, what it refuses, and what of one may be changed later.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Defaults fills in what was left open.
func Defaults(cfg *server.ConsumerConfig) {
	if cfg.MaxDeliver == 0 || cfg.MaxDeliver < -1 {
		cfg.MaxDeliver = -1
	}
	cfg.MaxWaiting = max(cfg.MaxWaiting, 0)
	cfg.MaxAckPending = max(cfg.MaxAckPending, -1)
	cfg.MaxRequestBatch = max(cfg.MaxRequestBatch, 0)
	cfg.MaxRequestExpires = max(cfg.MaxRequestExpires, 0)
	cfg.MaxRequestMaxBytes = max(cfg.MaxRequestMaxBytes, 0)
	cfg.Heartbeat = max(cfg.Heartbeat, 0)
	cfg.InactiveThreshold = max(cfg.InactiveThreshold, 0)
	if cfg.DeliverSubject == "" && cfg.MaxWaiting == 0 {
		cfg.MaxWaiting = server.JSWaitQueueDefaultMax
	}
	if cfg.AckWait == 0 && (cfg.AckPolicy == server.AckExplicit || cfg.AckPolicy == server.AckAll) {
		cfg.AckWait = server.JsAckWaitDefault
	}
	if len(cfg.BackOff) > 0 {
		cfg.AckWait = cfg.BackOff[0]
	}
	if cfg.MaxAckPending == 0 && cfg.AckPolicy != server.AckNone {
		cfg.MaxAckPending = server.JsDefaultMaxAckPending
	}
}

// Check is what is wrong with the configuration of a consumer.
func Check(cfg *server.ConsumerConfig, stream *server.StreamConfig) *server.ApiError {
	queue := stream.Retention != server.LimitsPolicy
	switch {
	case cfg.Name != "" && !store.ValidName(cfg.Name):
		return invalid("consumer name can not contain '.', '*', '>', '\\', '/'")
	case cfg.Replicas > stream.Replicas:
		return server.NewJSConsumerReplicasExceedsStreamError()
	case cfg.Replicas < 0:
		return server.NewJSReplicasCountCannotBeNegativeError()
	case queue && cfg.Replicas != 0 && cfg.Replicas != stream.Replicas:
		return server.NewJSConsumerReplicasShouldMatchStreamError()
	case slices.ContainsFunc(cfg.BackOff, func(d time.Duration) bool { return d < 0 }):
		return server.NewJSConsumerBackOffNegativeError()
	case cfg.AckWait < 0:
		return server.NewJSConsumerAckWaitNegativeError()
	case len(cfg.BackOff) > 0 && cfg.MaxDeliver != -1 && len(cfg.BackOff) > cfg.MaxDeliver:
		return server.NewJSConsumerMaxDeliverBackoffError()
	}
	if err := checkDelivery(cfg, stream); err != nil {
		return err
	}
	if err := checkFilters(cfg); err != nil {
		return err
	}
	if err := checkStart(cfg); err != nil {
		return server.NewJSConsumerInvalidPolicyError(err)
	}
	switch {
	case cfg.FlowControl && cfg.Heartbeat == 0:
		return server.NewJSConsumerWithFlowControlNeedsHeartbeatsError()
	case cfg.Durable != "" && cfg.Name != "" && cfg.Name != cfg.Durable:
		return server.NewJSConsumerCreateDurableAndNameMismatchError()
	}
	return nil
}

func checkDelivery(cfg *server.ConsumerConfig, stream *server.StreamConfig) *server.ApiError {
	if to := cfg.DeliverSubject; to != "" {
		switch {
		case store.Wild(to):
			return server.NewJSConsumerDeliverToWildcardsError()
		case !store.Valid(to):
			return server.NewJSConsumerInvalidDeliverSubjectError()
		case slices.ContainsFunc(stream.Subjects, func(f string) bool { return store.Match(f, to) }):
			return server.NewJSConsumerDeliverCycleError()
		case cfg.MaxWaiting != 0:
			return server.NewJSConsumerPushMaxWaitingError()
		case cfg.MaxAckPending > 0 && cfg.AckPolicy == server.AckNone:
			return server.NewJSConsumerMaxPendingAckPolicyRequiredError()
		case cfg.Heartbeat > 0 && cfg.Heartbeat < 100*time.Millisecond:
			return server.NewJSConsumerSmallHeartbeatError()
		}
		return nil
	}
	switch {
	case cfg.AckPolicy == server.AckNone && stream.Retention == server.WorkQueuePolicy:
		return server.NewJSConsumerPullRequiresAckError()
	case cfg.Heartbeat > 0:
		return server.NewJSConsumerHBRequiresPushError()
	case cfg.FlowControl:
		return server.NewJSConsumerFCRequiresPushError()
	case cfg.MaxRequestExpires != 0 && cfg.MaxRequestExpires < time.Millisecond:
		return server.NewJSConsumerMaxRequestExpiresTooSmallError()
	}
	return nil
}

func checkFilters(cfg *server.ConsumerConfig) *server.ApiError {
	if cfg.FilterSubject != "" && len(cfg.FilterSubjects) > 0 {
		return server.NewJSConsumerDuplicateFilterSubjectsError()
	}
	if slices.Contains(cfg.FilterSubjects, "") {
		return server.NewJSConsumerEmptyFilterError()
	}
	filters := FiltersOf(cfg)
	for i, f := range filters {
		if !store.Valid(f) {
			return server.NewJSStreamInvalidConfigError(server.ErrBadSubject)
		}
		for j, g := range filters {
			if i != j && store.Match(g, f) {
				return server.NewJSConsumerOverlappingSubjectFiltersError()
			}
		}
	}
	return nil
}

func checkStart(cfg *server.ConsumerConfig) error {
	names := map[server.DeliverPolicy]string{
		server.DeliverAll: "all", server.DeliverLast: "last", server.DeliverLastPerSubject: "last per subject", server.DeliverNew: "new",
		server.DeliverByStartSequence: "by start sequence", server.DeliverByStartTime: "by start time",
	}
	policy := names[cfg.DeliverPolicy]
	also := func(start string) error {
		return fmt.Errorf("consumer delivery policy is deliver %s, but optional start %s is also set", policy, start)
	}
	missing := func(what string) error {
		return fmt.Errorf("consumer delivery policy is deliver %s, but optional %s is not set", policy, what)
	}
	bySeq, byTime := cfg.DeliverPolicy == server.DeliverByStartSequence, cfg.DeliverPolicy == server.DeliverByStartTime
	switch {
	case policy == "":
		return errors.New("unknown")
	case bySeq && cfg.OptStartSeq == 0:
		return missing("start sequence")
	case byTime && cfg.OptStartTime == nil:
		return missing("start time")
	case !bySeq && cfg.OptStartSeq > 0:
		return also("sequence")
	case !byTime && cfg.OptStartTime != nil:
		return also("time")
	case cfg.DeliverPolicy == server.DeliverLastPerSubject && len(FiltersOf(cfg)) == 0:
		return missing("filter subject")
	}
	return nil
}

// bePatient sets how long the consumer stays without use. The server adds up to a second by chance; here it is always half of that.
func (o *Consumer) bePatient() {
	cfg := &o.cfg
	jitter := 550 * time.Millisecond
	switch {
	case cfg.Durable == "" && cfg.InactiveThreshold <= 0:
		cfg.InactiveThreshold = server.JsDeleteWaitTimeDefault
		o.patience = cfg.InactiveThreshold + jitter
	case cfg.InactiveThreshold > 0 && o.pull():
		o.patience = cfg.InactiveThreshold + jitter
	default:
		o.patience = cfg.InactiveThreshold
	}
}

// FiltersOf are the filters of a configuration; none is everything.
func FiltersOf(cfg *server.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return slices.Clone(cfg.FilterSubjects)
}

// Same reports whether two configurations say the same.
func Same(a, b *server.ConsumerConfig) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// Update changes what may be changed of a consumer.
func (o *Consumer) Update(cfg *server.ConsumerConfig) error {
	if !Same(&o.cfg, cfg) {
		if err := o.mayBecome(cfg); err != nil {
			return err
		}
	}
	old := o.cfg
	o.cfg = *cfg
	if cfg.AckWait != old.AckWait && len(o.pending) > 0 {
		o.check = o.now() + int64(100*time.Millisecond)
	}
	o.signaled = o.signaled || cfg.MaxAckPending != old.MaxAckPending
	if cfg.InactiveThreshold != old.InactiveThreshold {
		o.bePatient()
		o.idle = 0
		if o.patience > 0 {
			o.idle = o.now() + int64(o.patience)
		}
	}
	if cfg.DeliverSubject != old.DeliverSubject {
		o.Interested()
	}
	if filters := FiltersOf(cfg); !slices.Equal(slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(o.filters))) {
		o.filters, o.hears = filters, filters
		o.Recount()
	}
	return nil
}

func (o *Consumer) mayBecome(cfg *server.ConsumerConfig) error {
	old := &o.cfg
	switch {
	case old.DeliverPolicy != cfg.DeliverPolicy:
		return errors.New("deliver policy can not be updated")
	case old.MemoryStorage != cfg.MemoryStorage:
		return errors.New("storage type can not be updated")
	case old.OptStartSeq != cfg.OptStartSeq:
		return errors.New("start sequence can not be updated")
	case (old.OptStartTime == nil) != (cfg.OptStartTime == nil) || old.OptStartTime != nil && !old.OptStartTime.Equal(*cfg.OptStartTime):
		return errors.New("start time can not be updated")
	case old.AckPolicy != cfg.AckPolicy:
		return errors.New("ack policy can not be updated")
	case old.ReplayPolicy != cfg.ReplayPolicy:
		return errors.New("replay policy can not be updated")
	case old.Heartbeat != cfg.Heartbeat:
		return errors.New("heart beats can not be updated")
	case old.FlowControl != cfg.FlowControl:
		return errors.New("flow control can not be updated")
	case old.DeliverSubject == "" && cfg.DeliverSubject != "":
		return errors.New("can not update pull consumer to push based")
	case old.DeliverSubject != "" && cfg.DeliverSubject == "":
		return errors.New("can not update push consumer to pull based")
	case old.DeliverSubject != cfg.DeliverSubject && o.e.Interest(old.DeliverSubject):
		return server.NewJSConsumerNameExistError()
	case old.MaxWaiting != cfg.MaxWaiting:
		return errors.New("max waiting can not be updated")
	}
	return nil
}

func (o *Consumer) MayReset(seq uint64) error {
	switch cfg := &o.cfg; {
	case seq == 0 || cfg.DeliverPolicy == server.DeliverAll:
	case cfg.DeliverPolicy == server.DeliverByStartSequence:
		if seq < cfg.OptStartSeq {
			return errors.New("below start seq")
		}
	case cfg.DeliverPolicy == server.DeliverByStartTime:
		if seq < o.s.Log().Since(cfg.OptStartTime.UnixNano()) {
			return errors.New("below start time")
		}
	default:
		return errors.New("not allowed")
	}
	return nil
}

func invalid(text string) *server.ApiError {
	return server.NewJSStreamInvalidConfigError(errors.New(text))
}
