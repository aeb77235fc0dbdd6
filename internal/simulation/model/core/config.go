package core

// Configurations of streams and consumers: what the server fills in, and what it refuses.

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// ErrNotModelled says that the model does not know what it was asked for.
var ErrNotModelled = errors.New("not modelled")

func invalid(text string, args ...any) *server.ApiError {
	return server.NewJSStreamInvalidConfigError(fmt.Errorf(text, args...))
}

// Static sets the fields of the metadata that the server keeps: the level of the API that the configuration needs.
func Static(cfg *server.StreamConfig) {
	cfg.Metadata = store.Static(cfg.Metadata)
	level := "0"
	switch {
	case cfg.AllowBatchPublish:
		level = "4"
	case cfg.AllowMsgCounter, cfg.AllowAtomicPublish, cfg.AllowMsgSchedules, cfg.PersistMode == server.AsyncPersistMode:
		level = "2"
	case cfg.AllowMsgTTL, cfg.SubjectDeleteMarkerTTL > 0:
		level = "1"
	}
	cfg.Metadata[server.JSRequiredLevelMetadataKey] = level
}

// Checked is a configuration with what the server fills in.
func (c *Core) Checked(want *server.StreamConfig) (server.StreamConfig, *server.ApiError) {
	cfg := *want
	if !store.ValidName(cfg.Name) {
		return cfg, invalid("stream name is required and can not contain '.', '*', '>', '\\', '/'")
	}
	if len(cfg.Name) > server.JSMaxNameLen {
		return cfg, invalid("stream name is too long, maximum allowed is %d", server.JSMaxNameLen)
	}
	if cfg.Mirror != nil || len(cfg.Sources) > 0 || cfg.AllowMsgCounter || cfg.SubjectDeleteMarkerTTL != 0 || cfg.PersistMode == server.AsyncPersistMode || cfg.ConsumerLimits != (server.StreamConsumerLimits{}) {
		return cfg, server.NewJSStreamInvalidConfigError(ErrNotModelled)
	}
	if cfg.Storage == 0 {
		cfg.Storage = server.FileStorage
	}
	switch {
	case cfg.Replicas == 0:
		cfg.Replicas = 1
	case cfg.Replicas > server.StreamMaxReplicas:
		return cfg, invalid("maximum replicas is %d", server.StreamMaxReplicas)
	case cfg.Replicas < 0:
		return cfg, server.NewJSReplicasCountCannotBeNegativeError()
	}
	for _, n := range []*int64{&cfg.MaxMsgs, &cfg.MaxMsgsPer, &cfg.MaxBytes} {
		if *n == 0 || *n < -1 {
			*n = -1
		}
	}
	if cfg.MaxMsgSize == 0 || cfg.MaxMsgSize < -1 {
		cfg.MaxMsgSize = -1
	}
	if cfg.MaxConsumers == 0 || cfg.MaxConsumers < -1 {
		cfg.MaxConsumers = -1
	}
	if err := checkTimes(&cfg); err != nil {
		return cfg, err
	}
	if err := checkPolicies(&cfg); err != nil {
		return cfg, err
	}
	return cfg, checkSubjects(&cfg)
}

func checkTimes(cfg *server.StreamConfig) *server.ApiError {
	if cfg.MaxAge < 0 {
		return invalid("max age can not be negative")
	}
	if cfg.MaxAge != 0 && cfg.MaxAge < 100*time.Millisecond {
		return invalid("max age needs to be >= 100ms")
	}
	if cfg.Duplicates == 0 {
		cfg.Duplicates = server.StreamDefaultDuplicatesWindow
		if cfg.MaxAge != 0 {
			cfg.Duplicates = min(cfg.Duplicates, cfg.MaxAge)
		}
	}
	switch {
	case cfg.Duplicates < 0:
		return invalid("duplicates window can not be negative")
	case cfg.MaxAge != 0 && cfg.Duplicates > cfg.MaxAge:
		return invalid("duplicates window can not be larger then max age")
	case cfg.Duplicates < 100*time.Millisecond:
		return invalid("duplicates window needs to be >= 100ms")
	}
	return nil
}

func checkPolicies(cfg *server.StreamConfig) *server.ApiError {
	if cfg.DenyPurge && cfg.AllowRollup {
		return invalid("roll-ups require the purge permission")
	}
	if cfg.DiscardNewPer {
		if cfg.Discard != server.DiscardNew {
			return invalid("discard new per subject requires discard new policy to be set")
		}
		if cfg.MaxMsgsPer <= 0 {
			return invalid("discard new per subject requires max msgs per subject > 0")
		}
	}
	if cfg.AllowMsgSchedules {
		if cfg.Discard == server.DiscardNew {
			return invalid("message scheduling cannot use discard new")
		}
		if !cfg.AllowRollup {
			cfg.AllowRollup, cfg.DenyPurge = true, false
		}
	}
	return nil
}

func checkSubjects(cfg *server.StreamConfig) *server.ApiError {
	if len(cfg.Subjects) == 0 {
		cfg.Subjects = []string{cfg.Name}
	}
	for i, s := range cfg.Subjects {
		if !store.Valid(s) {
			return invalid("invalid subject")
		}
		if slices.Contains(cfg.Subjects[:i], s) {
			return invalid("duplicate subjects detected")
		}
		if s == ">" && !cfg.NoAck {
			return invalid("capturing all subjects requires no-ack to be true")
		}
		for _, own := range []string{"$JS.>", "$JSC.>", "$NRG.>"} {
			if !cfg.NoAck && store.Collide(s, own) && !store.Match("$JS"+".EVENT.>", s) {
				return invalid("subjects that overlap with jetstream api require no-ack to be true")
			}
		}
		if !cfg.NoAck && store.Collide(s, "$SYS.>") && !store.Match("$SYS.ACCOUNT.>", s) {
			return invalid("subjects that overlap with system api require no-ack to be true")
		}
		for _, o := range cfg.Subjects[i+1:] {
			if store.Collide(o, s) && o != s {
				return invalid("subject %q overlaps with %q", s, o)
			}
		}
	}
	if t := cfg.SubjectTransform; t != nil {
		if t.Source != "" && !store.Valid(t.Source) {
			return server.NewJSStreamTransformInvalidSourceError(fmt.Errorf("%w %s", server.ErrBadSubject, t.Source))
		}
		if err := server.ValidateMapping(t.Source, t.Destination); err != nil {
			return server.NewJSStreamTransformInvalidDestinationError(err)
		}
	}
	if r := cfg.RePublish; r != nil {
		if r.HeadersOnly {
			return server.NewJSStreamInvalidConfigError(ErrNotModelled)
		}
		if r.Source == "" {
			r.Source = ">"
		}
		for _, s := range cfg.Subjects {
			if store.Collide(r.Destination, s) {
				return invalid("stream configuration for republish destination forms a cycle")
			}
		}
	}
	return nil
}

// mayBecome is why a stream may not be changed to a configuration.
func (s *Stream) mayBecome(cfg *server.StreamConfig) *server.ApiError {
	old := &s.cfg
	queue := old.Retention == server.WorkQueuePolicy || cfg.Retention == server.WorkQueuePolicy
	switch {
	case cfg.Name != old.Name:
		return invalid("stream configuration name must match original")
	case cfg.Replicas > s.c.o.Replicas:
		return server.NewJSStreamReplicasNotSupportedError()
	case cfg.Replicas != old.Replicas:
		return server.NewJSStreamInvalidConfigError(ErrNotModelled)
	case cfg.Storage != old.Storage:
		return invalid("stream configuration update can not change storage type")
	case cfg.Retention != old.Retention && queue:
		return invalid("stream configuration update can not change retention policy to/from workqueue")
	case !cfg.Sealed && old.Sealed:
		return invalid("stream configuration update can not unseal a sealed stream")
	case !cfg.DenyDelete && old.DenyDelete:
		return invalid("stream configuration update can not cancel deny message deletes")
	case !cfg.DenyPurge && old.DenyPurge:
		return invalid("stream configuration update can not cancel deny purge")
	case old.AllowMsgTTL && !cfg.AllowMsgTTL:
		return invalid("message TTL status can not be disabled")
	case old.AllowMsgSchedules && !cfg.AllowMsgSchedules:
		return invalid("message schedules can not be disabled")
	}
	if cfg.Sealed {
		cfg.MaxAge, cfg.Discard, cfg.AllowRollup = 0, server.DiscardNew, false
		cfg.DenyDelete, cfg.DenyPurge = true, true
	}
	return nil
}
