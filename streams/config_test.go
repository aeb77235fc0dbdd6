package streams

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

func TestEnsureCreatesAndThenChangesNothing(t *testing.T) {
	t.Parallel()
	g := setup(t, Interval)
	before := g.configs()
	require.Len(t, before, 5+5)
	diffs, err := Ensure(g.ctx, g.js, testPlan(g.names))
	require.NoError(t, err)
	require.Empty(t, diffs)
	require.Equal(t, before, g.configs())
	for _, bucket := range []string{"things", "thing_steps", OwnersBucket} {
		kv, err := g.js.KeyValue(g.ctx, bucket)
		require.NoError(t, err)
		rev, err := kv.Create(g.ctx, "default.a", []byte("1"))
		require.NoError(t, err)
		_, err = kv.Update(g.ctx, "default.a", []byte("2"), rev)
		require.NoError(t, err)
		_, err = kv.Update(g.ctx, "default.a", []byte("3"), rev)
		require.ErrorIs(t, err, jetstream.ErrKeyRevisionMismatch)
		require.NoError(t, kv.Purge(g.ctx, "default.a"))
		require.False(t, before["KV_"+bucket].AllowDirect, "replicas answer stale reads")
		require.True(t, before["KV_"+bucket].AllowAtomicPublish)
	}
	require.Equal(t, jetstream.WorkQueuePolicy, before[CommandStream].Retention)
	require.Equal(t, CommandWindow, before[CommandStream].Duplicates)
	require.Equal(t, EventWindow, before[EventStream].Duplicates)
}

func (g *ground) configs() map[string]jetstream.StreamConfig {
	g.t.Helper()
	all := map[string]jetstream.StreamConfig{}
	streams := g.js.ListStreams(g.ctx)
	for s := range streams.Info() {
		all[s.Config.Name] = s.Config
	}
	require.NoError(g.t, streams.Err())
	return all
}

// Each stream that there is already differs in one setting: it is told, and left as it is.
func TestEnsureReportsEveryDifference(t *testing.T) {
	t.Parallel()
	g := bare(t, ServerOptions{Profile: OS})
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
	plan := testPlan(g.names)
	_, err := Ensure(g.ctx, g.js, plan)
	require.NoError(t, err)
	for _, config := range plan.Configs() {
		of := changes
		if config.Name == CommandStream {
			of = append(of[:len(of):len(of)], noTransform, change{"message schedules", func(c *jetstream.StreamConfig) { c.AllowMsgSchedules = false }})
		}
		if config.AllowRollup && !config.AllowMsgSchedules {
			of = append(of[:len(of):len(of)], change{"rollups", func(c *jetstream.StreamConfig) { c.AllowRollup = false }})
		}
		for _, ch := range of {
			deviating := config
			ch.make(&deviating)
			require.NoError(t, g.js.DeleteStream(g.ctx, config.Name))
			s, err := g.js.CreateStream(g.ctx, deviating)
			if err != nil { // a combination that the server does not take cannot be found either
				require.NotContains(t, []string{"subjects", "bytes", "age", "duplicate window", "direct reads", "message size"}, ch.setting, "%s: %v", config.Name, err)
				_, err = g.js.CreateStream(g.ctx, config)
				require.NoError(t, err)
				continue
			}
			made := s.CachedInfo().Config
			diffs, err := Ensure(g.ctx, g.js, plan)
			require.NoError(t, err)
			if ch.setting == "age" && config.Name == "KV_"+g.names.Bucket(IdempotencyBucket) {
				require.Empty(t, diffs, "how long answers are kept is a setting: it is changed")
				s, err := g.js.Stream(g.ctx, config.Name)
				require.NoError(t, err)
				require.Equal(t, config.MaxAge, s.CachedInfo().Config.MaxAge)
				continue
			}
			if ch.setting == "bytes" && (config.Name == EventStream || config.Name == DeadStream) {
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
			s, err = g.js.Stream(g.ctx, config.Name)
			require.NoError(t, err)
			require.Equal(t, made, s.CachedInfo().Config, "it is left as it is")
		}
		require.NoError(t, g.js.DeleteStream(g.ctx, config.Name))
		_, err := g.js.CreateStream(g.ctx, config)
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
	g := setup(t, OS)
	p := testPlan(g.names)
	p.Replicas = 3
	diffs, err := Ensure(g.ctx, g.js, p)
	require.NoError(t, err)
	require.Len(t, diffs, 5+5)
	require.Equal(t, Difference{Stream: CommandStream, Setting: "replicas", Want: "3", Have: "1"}, diffs[0])
}

func TestEventsLiveByClass(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	require.Equal(t, 3*365*day, LifeOf("state"))
	require.Equal(t, 3*365*day, LifeOf("resource"))
	require.Equal(t, 365*day, LifeOf("error"))
	require.Equal(t, 90*day, LifeOf("progress"))
	require.Equal(t, LifeOf("state"), LifeOf("of tomorrow"))
	g := setup(t, OS)
	a := g.appender(AppenderOptions{})
	for class, want := range map[string]string{"progress": "7776000s", "state": "94608000s"} {
		m := event(class, "thing.made", "{}")
		Keep(m, LifeOf(class))
		require.NoError(t, a.Append(g.ctx, []Write{{EventStream, m}})[0].Err)
		require.Equal(t, want, g.held(EventStream, m.Subject)[0].Header.Get("Nats-TTL"))
	}
	brief := event("brief", "thing.made", "{}")
	Keep(brief, time.Millisecond)
	require.Equal(t, []string{"1s"}, brief.Header["Nats-TTL"], "the least that the server takes")
	require.NoError(t, a.Append(g.ctx, []Write{{EventStream, brief}})[0].Err)
	g.eventually("it ends", func() bool { return len(g.held(EventStream, brief.Subject)) == 0 })
}

// The partition is part of where an entity's commands lie: what this program computes must be what any server stores.
func TestPartitionIsTheServers(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	var keys []string
	for i := range 250 {
		keys = append(keys, fmt.Sprintf("ns-%d.web-%d", i%7, i), fmt.Sprintf("ns-%d.web-%d.i-%d", i%5, i%50, i))
	}
	want := map[string]string{}
	for i, key := range keys {
		machine := []string{"service", "instance", "database_provisioning", "x"}[i%4]
		require.NoError(t, g.nc.Publish(Names{}.Command(machine, key, "create"), []byte(key+"/"+machine)))
		want[key+"/"+machine] = Names{}.Stored(machine, key, "create")
	}
	g.eventually("all are stored", func() bool {
		s, err := g.js.Stream(g.ctx, CommandStream)
		return err == nil && s.CachedInfo().State.Msgs == uint64(len(want))
	})
	have := map[string]string{}
	for _, m := range g.held(CommandStream, ">") {
		have[string(m.Data)] = m.Subject
		_, err := Names{}.ParseStored(m.Subject)
		require.NoError(t, err)
	}
	require.Equal(t, want, have)
}

// Two installations on one server do not see each other.
func TestPrefixesAreApart(t *testing.T) {
	t.Parallel()
	g := setup(t, OS)
	acme := Names{Prefix: "acme"}
	diffs, err := Ensure(g.ctx, g.js, testPlan(acme))
	require.NoError(t, err)
	require.Empty(t, diffs)
	require.Len(t, g.configs(), 2*(5+5))
	one, two := g.appender(AppenderOptions{}), g.appender(AppenderOptions{Names: acme})
	ones, twos := g.commands(one), g.commands(two)
	cmd := Command{Machine: "thing", Key: "default.a", Name: "create", ID: "same"}
	for _, c := range []*Commands{ones, twos} {
		r, err := c.Send(g.ctx, cmd)
		require.NoError(t, err)
		require.Equal(t, Result{Seq: 1}, r, "neither a duplicate nor behind another")
	}
	require.Len(t, g.held(CommandStream, ">"), 1)
	require.Len(t, g.held("ACME_COMMANDS", "acme.in.>"), 1)
	for _, bucket := range []string{"things", "acme_things"} {
		kv, err := g.js.KeyValue(g.ctx, bucket)
		require.NoError(t, err)
		_, err = kv.Create(g.ctx, "default.a", []byte(bucket))
		require.NoError(t, err)
	}
	_, err = g.js.PublishMsg(g.ctx, &nats.Msg{Subject: acme.Probe(), Data: []byte("x")})
	require.NoError(t, err)
	require.Empty(t, g.held(ProbeStream, ">"))
}
