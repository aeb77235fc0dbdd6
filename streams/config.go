package streams

// The streams and buckets of an installation, as the program wants them. Package server makes a Plan; Configs turns it into stream configurations, and Ensure creates those that
// are missing and returns how existing ones differ (compare), for the log. Restores (snapshot.go) and the copies for readers (copies.go) start from the same configurations.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// MaxMessage is how large a message of a stream may be, with its headers.
const MaxMessage = 1 << 20

// The streams, by their plain names (see [Names.Stream]).
const (
	CommandStream = "COMMANDS"
	EventStream   = "EVENTS"
	EffectStream  = "EFFECTS"
	DeadStream    = "DEAD_LETTERS"
	ProbeStream   = "PROBE"
)

// LogStream holds the log lines of what workers do, by entity: the last ones. Who serves a machine that has logs makes it.
const LogStream = "LOGS"

// OwnersBucket holds the nodes that live, and who of them has which partition and role.
const OwnersBucket = "owners"

// IdempotencyBucket holds what commands were answered that were sent under a key of their sender.
const IdempotencyBucket = "idempotency"

// IdempotencyWindow is how long those answers are kept by default. It is what the draft of the header's specification
// leaves to the server (draft-ietf-httpapi-idempotency-key-header-07, 2.3).
const IdempotencyWindow = 24 * time.Hour

// OperationsBucket holds operations on many entities and their progress, for [OperationsLife] after the last change.
const (
	OperationsBucket = "operations"
	OperationsLife   = 7 * 24 * time.Hour
)

// Windows in which the server itself drops a message whose id it has seen. Exactness does not rest on them; they save
// work. An id costs about 138 bytes of memory for as long as the window.
const (
	CommandWindow = 2 * time.Minute
	EventWindow   = 30 * time.Second
)

// Lives of events by class.
var lives = map[string]time.Duration{
	"state":    3 * 365 * 24 * time.Hour,
	"resource": 3 * 365 * 24 * time.Hour,
	"error":    365 * 24 * time.Hour,
	"progress": 90 * 24 * time.Hour,
}

// LifeOf is how long an event of the class is kept; an unknown class is kept as long as any.
func LifeOf(class string) time.Duration {
	if d, ok := lives[class]; ok {
		return d
	}
	return lives["state"]
}

// Plan is what [Ensure] brings about.
type Plan struct {
	Names    Names
	Replicas int      // 1 or 3
	States   []string // buckets of entities, by plain name
	Views    []string // buckets of read models, by plain name
	Live     []string // those of States whose values are also published on core NATS as they are stored (see [Names.Live])

	Idempotency time.Duration // how long the answer to a key is kept; 0 is IdempotencyWindow

	// Bytes that these streams may have; beyond them the oldest messages are removed. 0 is a share of Store, unless the stream has a bound that somebody has set.
	Events, DeadLetters int64
	Store               int64  // bytes of all streams; 0 is not known, and has no shares
	StoreSet            bool   // Store was set by the operator. Else it is what was found, and shares of it only grow
	Node                string // the member of a cluster whose Store it is; empty for a single server

	Log *slog.Logger // for bounds that remove messages; nil logs nothing

	FirstSeq uint64 // of streams that are created; 0 is 1
}

// Difference is a setting of an existing stream that is not as planned.
type Difference struct {
	Stream, Setting, Want, Have string
	Err                         error // why it could not be changed; nil where that is not for the program to do
}

func (d Difference) String() string {
	text := fmt.Sprintf("stream %s: %s is %s, should be %s", d.Stream, d.Setting, d.Have, d.Want)
	if d.Err != nil {
		text += fmt.Sprintf(", and cannot be changed: %v", d.Err)
	}
	return text
}

// Configs are the stream configurations of the plan.
func (p Plan) Configs() []jetstream.StreamConfig {
	n, replicas := p.Names, max(p.Replicas, 1)
	base := func(name, doc string, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: n.Stream(name), Description: doc, Subjects: subjects, Replicas: replicas,
			Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
			MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: MaxMessage,
			AllowAtomicPublish: true,
		}
	}
	commands := base(CommandStream, "Commands and timers; the engine takes them in order, a partition at a time", n.join("cmd", "*", "*", "*", ">"), n.StoredAll(), n.join("timer", ">"))
	commands.Retention, commands.Duplicates, commands.AllowMsgSchedules, commands.AllowMsgTTL = jetstream.WorkQueuePolicy, CommandWindow, true, true
	commands.AllowRollup = true // schedules need it: the server sets it by itself
	commands.SubjectTransform = &jetstream.SubjectTransformConfig{
		Source:      n.join("cmd", "*", "*", "*", ">"),
		Destination: n.join("in", "{{partition("+strconv.Itoa(Partitions)+",1,2,3)}}", "{{wildcard(1)}}", "{{wildcard(2)}}", "{{wildcard(3)}}", ">"),
	}
	events := base(EventStream, "What happened, by entity", n.join("evt", ">"))
	events.Duplicates, events.AllowMsgTTL = EventWindow, true
	effects := base(EffectStream, "What is to be done in the world", n.join("fx", ">"))
	effects.Retention, effects.Duplicates = jetstream.WorkQueuePolicy, CommandWindow
	dead := base(DeadStream, "What no code could handle, with the reason", n.join("dead", ">"))
	dead.Duplicates = CommandWindow
	p.bind(&events, p.Events, eventShare)
	p.bind(&dead, p.DeadLetters, deadShare)
	probe := base(ProbeStream, "Written every few seconds to see whether the disk takes writes", n.Probe())
	probe.MaxMsgs, probe.Duplicates = 1, CommandWindow
	configs := []jetstream.StreamConfig{commands, events, effects, dead, probe}
	for _, b := range p.States {
		c := bucketConfig(n.Bucket(b), entitiesDoc, replicas)
		c.AllowMsgTTL = true            // of what is left of values that were dropped
		if slices.Contains(p.Live, b) { // a subscriber costs the server no consumer, so there may be thousands
			c.RePublish = &jetstream.RePublish{Source: c.Subjects[0], Destination: n.Live(n.Bucket(b), ">")}
		}
		configs = append(configs, c)
	}
	owners := bucketConfig(n.Bucket(OwnersBucket), "Nodes that live, and who of them has which partition and role", replicas)
	owners.AllowMsgTTL = true
	configs = append(configs, owners)
	kept := bucketConfig(n.Bucket(IdempotencyBucket), "What was answered to commands under the keys of their senders", replicas)
	kept.MaxAge = p.Idempotency
	if kept.MaxAge <= 0 {
		kept.MaxAge = IdempotencyWindow
	}
	kept.Duplicates = min(kept.Duplicates, kept.MaxAge)
	configs = append(configs, kept)
	operations := bucketConfig(n.Bucket(OperationsBucket), "Operations on many entities: what was asked for, and how far it is", replicas)
	operations.MaxAge = OperationsLife
	configs = append(configs, operations)
	for _, b := range p.Views {
		configs = append(configs, bucketConfig(n.Bucket(b), viewDoc, replicas))
	}
	for i := range configs {
		configs[i].FirstSeq = p.FirstSeq
	}
	return configs
}

// bucketConfig is a KV bucket written as a stream: nats.go's own helper always allows direct reads, which are stale
// on replicas right after a write, and takes AllowAtomicPublish away again.
func bucketConfig(bucket, doc string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: BucketStream(bucket), Description: doc, Subjects: []string{BucketSubject(bucket, ">")}, Replicas: replicas,
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1,
		MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, MaxMsgSize: MaxMessage, Duplicates: CommandWindow,
		AllowRollup: true, DenyDelete: true, AllowDirect: false, AllowAtomicPublish: true,
	}
}

// Ensure creates what is missing of the plan and reports how the rest differs. Of what exists it changes only what is a setting: how long answers to keys are kept, how many
// bytes the streams of events and dead letters may have, and that messages of a bucket of entities may have lives.
func Ensure(ctx context.Context, js jetstream.JetStream, p Plan) ([]Difference, error) {
	configs := p.Configs()
	there, err := found(ctx, js, configs)
	if err != nil {
		return nil, err
	}
	var diffs []Difference
	for _, want := range configs {
		info := there[want.Name]
		if info == nil {
			if info, err = create(ctx, js, want); err != nil {
				return diffs, err
			}
		}
		have := info.Config
		if want.Name == BucketStream(p.Names.Bucket(IdempotencyBucket)) && have.MaxAge != want.MaxAge {
			have.MaxAge, have.Duplicates = want.MaxAge, want.Duplicates
			if err := update(ctx, js, have); err != nil {
				return diffs, fmt.Errorf("streams: cannot change how long answers to keys are kept: %w", err)
			}
		}
		var lives error
		if want.Description == entitiesDoc && want.AllowMsgTTL && !have.AllowMsgTTL { // an earlier version has made it
			have.AllowMsgTTL = true
			if lives = update(ctx, js, have); lives != nil {
				have.AllowMsgTTL = false
			}
		}
		bytes, err := p.rebind(ctx, js, &want, info)
		have.MaxBytes = bytes
		found := compare(want, have)
		for i := range found {
			switch found[i].Setting {
			case settingBytes:
				found[i].Err = err
			case settingLives:
				found[i].Err = lives
			}
		}
		diffs = append(diffs, found...)
	}
	return diffs, nil
}

// Replicated reports whether the stream of commands has replicas: a server of one's own may hold other streams than
// planned.
func Replicated(ctx context.Context, js jetstream.JetStream, names Names) (bool, error) {
	for try := 0; ; try++ {
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		s, err := js.Stream(ask, names.Stream(CommandStream))
		cancel()
		if err == nil {
			return s.CachedInfo().Config.Replicas > 1, nil
		}
		if try == 10 || ctx.Err() != nil {
			return false, fmt.Errorf("streams: cannot look at stream %s: %w", names.Stream(CommandStream), err)
		}
	}
}

// found are the streams of the plan that exist, by name. It fails when one carries the mark of a restore that did not end: others may have been removed.
func found(ctx context.Context, js jetstream.JetStream, configs []jetstream.StreamConfig) (map[string]*jetstream.StreamInfo, error) {
	all := map[string]*jetstream.StreamInfo{}
	for _, c := range configs {
		info, err := find(ctx, js, c)
		if err != nil {
			return nil, err
		}
		if info == nil {
			continue
		}
		if err := Unfinished(info.Config.Metadata); err != nil {
			return nil, err
		}
		all[c.Name] = info
	}
	return all, nil
}

// askedWithin is how long one stream may take to answer before it is asked again.
const askedWithin = 5 * time.Second

// asked asks for something of one stream that may be asked for twice, again and again until it is answered: what is on its way when a connection breaks is lost, and is not answered
// however long it is waited for. A replicated stream that has no leader yet does not answer either, and whoever waits for a cluster looks at all of it again.
func asked(ctx context.Context, c jetstream.StreamConfig, ask func(context.Context) error) error {
	for {
		wait := askedWithin
		if c.Replicas > 1 {
			wait = 2 * time.Second
		}
		once, cancel := context.WithTimeout(ctx, wait)
		err := ask(once)
		cancel()
		if c.Replicas > 1 || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// find returns what there is to know of a stream; nil when there is none.
func find(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (info *jetstream.StreamInfo, err error) {
	err = asked(ctx, want, func(ctx context.Context) error {
		s, err := js.Stream(ctx, want.Name)
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("streams: cannot look at stream %s: %w", want.Name, err)
	}
	return info, nil
}

func create(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (*jetstream.StreamInfo, error) {
	err := asked(ctx, want, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, want)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("streams: cannot create stream %s: %w", want.Name, err)
	}
	return &jetstream.StreamInfo{Config: want}, nil
}

func update(ctx context.Context, js jetstream.JetStream, to jetstream.StreamConfig) error {
	return asked(ctx, to, func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, to)
		return err
	})
}

// Settings that [Ensure] changes.
const (
	settingBytes = "bytes"
	settingLives = "message lives"
)

func compare(want, have jetstream.StreamConfig) []Difference {
	var diffs []Difference
	field := func(setting string, want, have any) {
		if w, h := fmt.Sprint(want), fmt.Sprint(have); w != h {
			diffs = append(diffs, Difference{Setting: setting, Want: w, Have: h})
		}
	}
	slices.Sort(want.Subjects)
	slices.Sort(have.Subjects)
	field("subjects", want.Subjects, have.Subjects)
	field("retention", want.Retention, have.Retention)
	field("storage", want.Storage, have.Storage)
	field("replicas", want.Replicas, have.Replicas)
	field("discard", want.Discard, have.Discard)
	field("messages per subject", want.MaxMsgsPerSubject, have.MaxMsgsPerSubject)
	field("messages", want.MaxMsgs, have.MaxMsgs)
	field(settingBytes, want.MaxBytes, have.MaxBytes)
	field("age", want.MaxAge, have.MaxAge)
	field("message size", want.MaxMsgSize, have.MaxMsgSize)
	field("consumers", want.MaxConsumers, have.MaxConsumers)
	field("duplicate window", want.Duplicates, have.Duplicates)
	field("direct reads", want.AllowDirect, have.AllowDirect)
	field("atomic batches", want.AllowAtomicPublish, have.AllowAtomicPublish)
	field("message schedules", want.AllowMsgSchedules, have.AllowMsgSchedules)
	field(settingLives, want.AllowMsgTTL, have.AllowMsgTTL)
	field("rollups", want.AllowRollup, have.AllowRollup)
	field("denied deletes", want.DenyDelete, have.DenyDelete)
	field("denied purges", want.DenyPurge, have.DenyPurge)
	field("publishes without answer", want.NoAck, have.NoAck)
	field("persistence", want.PersistMode, have.PersistMode)
	if want.RePublish != nil || have.RePublish != nil {
		field("republishing", republishing(want), republishing(have))
	}
	if want.SubjectTransform != nil || have.SubjectTransform != nil {
		field("subject transform", transform(want), transform(have))
	}
	for i := range diffs {
		diffs[i].Stream = want.Name
	}
	return diffs
}

func transform(c jetstream.StreamConfig) string {
	if c.SubjectTransform == nil {
		return "none"
	}
	return c.SubjectTransform.Source + " to " + c.SubjectTransform.Destination
}

func republishing(c jetstream.StreamConfig) string {
	if c.RePublish == nil {
		return "none"
	}
	return c.RePublish.Source + " to " + c.RePublish.Destination
}
