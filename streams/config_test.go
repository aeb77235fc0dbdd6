package streams_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestEnsureCreatesAndThenChangesNothing(t *testing.T) {
	t.Parallel()
	g := planned(t)
	before := configs(t, g)
	require.Len(t, before, 5+5)
	diffs, err := streams.Ensure(g.Ctx, g.JS, thingPlan(g.Names))
	require.NoError(t, err)
	require.Empty(t, diffs)
	require.Equal(t, before, configs(t, g))
	for _, bucket := range []string{"things", "thing_steps", streams.OwnersBucket} {
		kv, err := g.JS.KeyValue(g.Ctx, bucket)
		require.NoError(t, err)
		rev, err := kv.Create(g.Ctx, "default.a", []byte("1"))
		require.NoError(t, err)
		_, err = kv.Update(g.Ctx, "default.a", []byte("2"), rev)
		require.NoError(t, err)
		_, err = kv.Update(g.Ctx, "default.a", []byte("3"), rev)
		require.ErrorIs(t, err, jetstream.ErrKeyRevisionMismatch)
		require.NoError(t, kv.Purge(g.Ctx, "default.a"))
		require.False(t, before["KV_"+bucket].AllowDirect, "replicas answer stale reads")
		require.True(t, before["KV_"+bucket].AllowAtomicPublish)
	}
	require.Equal(t, jetstream.WorkQueuePolicy, before[streams.CommandStream].Retention)
	require.Equal(t, streams.CommandWindow, before[streams.CommandStream].Duplicates)
	require.Equal(t, streams.EventWindow, before[streams.EventStream].Duplicates)
}

// Each stream that there is already differs in one setting: it is told, and left as it is.
func TestEnsureReportsEveryDifference(t *testing.T) {
	t.Parallel()
	g := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	type change struct {
		setting string
		make    func(*jetstream.StreamConfig)
	}
	noTransform := change{"subject transform", func(c *jetstream.StreamConfig) { c.SubjectTransform = nil }}
	changes := []change{
		{"subjects", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more.>") }},
		{"retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }},
		{"storage", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }},
		{"discard", func(c *jetstream.StreamConfig) { c.Discard = other(c.Discard) }},
		{"messages per subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 7 }},
		{"messages", func(c *jetstream.StreamConfig) { c.MaxMsgs = 70 }},
		{"bytes", func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 30 }},
		{"age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{"message size", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1 << 10 }},
		{"consumers", func(c *jetstream.StreamConfig) { c.MaxConsumers = 3 }},
		{"duplicate window", func(c *jetstream.StreamConfig) { c.Duplicates = 5 * time.Second }},
		{"direct reads", func(c *jetstream.StreamConfig) { c.AllowDirect = true }},
		{"atomic batches", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }},
		{"message lives", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = !c.AllowMsgTTL }},
		{"denied deletes", func(c *jetstream.StreamConfig) { c.DenyDelete = !c.DenyDelete }},
		{"denied purges", func(c *jetstream.StreamConfig) { c.DenyPurge = true }},
		{"publishes without answer", func(c *jetstream.StreamConfig) { c.NoAck = true }},
		{"persistence", func(c *jetstream.StreamConfig) {
			c.PersistMode, c.AllowAtomicPublish = jetstream.AsyncPersistMode, false
		}},
	}
	plan := thingPlan(g.Names)
	_, err := streams.Ensure(g.Ctx, g.JS, plan)
	require.NoError(t, err)
	for _, config := range plan.Configs() {
		of := changes
		if config.Name == streams.CommandStream {
			of = append(of[:len(of):len(of)], noTransform, change{"message schedules", func(c *jetstream.StreamConfig) { c.AllowMsgSchedules = false }})
		}
		if config.AllowRollup && !config.AllowMsgSchedules {
			of = append(of[:len(of):len(of)], change{"rollups", func(c *jetstream.StreamConfig) { c.AllowRollup = false }})
		}
		for _, ch := range of {
			deviating := config
			ch.make(&deviating)
			require.NoError(t, g.JS.DeleteStream(g.Ctx, config.Name))
			s, err := g.JS.CreateStream(g.Ctx, deviating)
			if err != nil { // a combination that the server does not take cannot be found either
				require.NotContains(t, []string{"subjects", "bytes", "age", "duplicate window", "direct reads", "message size"}, ch.setting, "%s: %v", config.Name, err)
				_, err = g.JS.CreateStream(g.Ctx, config)
				require.NoError(t, err)
				continue
			}
			made := s.CachedInfo().Config
			diffs, err := streams.Ensure(g.Ctx, g.JS, plan)
			require.NoError(t, err)
			if ch.setting == "age" && config.Name == "KV_"+g.Names.Bucket(streams.IdempotencyBucket) {
				require.Empty(t, diffs, "how long answers are kept is a setting: it is changed")
				s, err := g.JS.Stream(g.Ctx, config.Name)
				require.NoError(t, err)
				require.Equal(t, config.MaxAge, s.CachedInfo().Config.MaxAge)
				continue
			}
			if ch.setting == "message lives" && config.Name == "KV_"+g.Names.Bucket("things") {
				require.Empty(t, diffs, "a bucket of an earlier version takes markers with a life from now on")
				s, err := g.JS.Stream(g.Ctx, config.Name)
				require.NoError(t, err)
				require.True(t, s.CachedInfo().Config.AllowMsgTTL)
				continue
			}
			if ch.setting == "bytes" && (config.Name == streams.EventStream || config.Name == streams.DeadStream) {
				require.Empty(t, diffs, "whoever has bounded it may have")
				continue
			}
			var settings []string
			for _, d := range diffs {
				require.Equal(t, config.Name, d.Stream)
				require.NotEqual(t, d.Want, d.Have)
				require.Equal(t, fmt.Sprintf("stream %s: %s is %s, should be %s", d.Stream, d.Setting, d.Have, d.Want), d.String())
				settings = append(settings, d.Setting)
			}
			require.Contains(t, settings, ch.setting, config.Name)
			if ch.setting != "persistence" {
				require.Len(t, settings, 1, "%s: %v", config.Name, diffs)
			}
			s, err = g.JS.Stream(g.Ctx, config.Name)
			require.NoError(t, err)
			require.Equal(t, made, s.CachedInfo().Config, "it is left as it is")
		}
		require.NoError(t, g.JS.DeleteStream(g.Ctx, config.Name))
		_, err := g.JS.CreateStream(g.Ctx, config)
		require.NoError(t, err)
	}
}

func other(d jetstream.DiscardPolicy) jetstream.DiscardPolicy {
	if d == jetstream.DiscardNew {
		return jetstream.DiscardOld
	}
	return jetstream.DiscardNew
}

func TestMoreReplicasAreReportedAndNotMade(t *testing.T) {
	t.Parallel()
	g := planned(t)
	p := thingPlan(g.Names)
	p.Replicas = 3
	diffs, err := streams.Ensure(g.Ctx, g.JS, p)
	require.NoError(t, err)
	require.Len(t, diffs, 5+5)
	require.Equal(t, streams.Difference{Stream: streams.CommandStream, Setting: "replicas", Want: "3", Have: "1"}, diffs[0])
}

func TestEventsLiveByClass(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	require.Equal(t, 3*365*day, streams.LifeOf("state"))
	require.Equal(t, 3*365*day, streams.LifeOf("resource"))
	require.Equal(t, 365*day, streams.LifeOf("error"))
	require.Equal(t, 90*day, streams.LifeOf("progress"))
	require.Equal(t, streams.LifeOf("state"), streams.LifeOf("of tomorrow"))
	g := planned(t)
	for class, want := range map[string]string{"progress": "7776000s", "state": "94608000s"} {
		m := &nats.Msg{Subject: g.Names.Event("thing", "default."+class, "thing.made"), Header: nats.Header{}}
		streams.Keep(m, streams.LifeOf(class))
		_, err := g.JS.PublishMsg(g.Ctx, m)
		require.NoError(t, err)
		require.Equal(t, want, g.Held(streams.EventStream, m.Subject)[0].Header.Get("Nats-TTL"))
	}
	brief := &nats.Msg{Subject: g.Names.Event("thing", "default.brief", "thing.made"), Header: nats.Header{}}
	streams.Keep(brief, time.Millisecond)
	require.Equal(t, []string{"1s"}, brief.Header["Nats-TTL"], "the least that the server takes")
	_, err := g.JS.PublishMsg(g.Ctx, brief)
	require.NoError(t, err)
	g.Eventually("it ends", func() bool { return len(g.Held(streams.EventStream, brief.Subject)) == 0 })
}

// The partition is part of where an entity's commands lie: what this program computes must be what any server stores.
func TestPartitionIsTheServers(t *testing.T) {
	t.Parallel()
	g := planned(t)
	var keys []string
	for i := range 250 {
		keys = append(keys, fmt.Sprintf("ns-%d.web-%d", i%7, i), fmt.Sprintf("ns-%d.web-%d.i-%d", i%5, i%50, i))
	}
	want := map[string]string{}
	for i, key := range keys {
		machine := []string{"service", "instance", "database_provisioning", "x"}[i%4]
		require.NoError(t, g.NC.Publish(streams.Names{}.Command(machine, key, "create"), []byte(key+"/"+machine)))
		want[key+"/"+machine] = streams.Names{}.Stored(machine, key, "create")
	}
	g.Eventually("all are stored", func() bool {
		s, err := g.JS.Stream(g.Ctx, streams.CommandStream)
		return err == nil && s.CachedInfo().State.Msgs == uint64(len(want))
	})
	have := map[string]string{}
	for _, m := range g.Held(streams.CommandStream, ">") {
		have[string(m.Data)] = m.Subject
		_, err := streams.Names{}.ParseStored(m.Subject)
		require.NoError(t, err)
	}
	require.Equal(t, want, have)
}
