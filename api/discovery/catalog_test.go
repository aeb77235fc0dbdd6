package discovery

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/instance"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// fed is a catalog that is fed by hand at a clock that stands.
func fed(now *time.Time) *Catalog {
	c := New(Options{Now: func() time.Time { return *now }})
	return c
}

func (c *Catalog) feed(revision uint64, deleted bool, r *instance.Record) {
	it := index.Item{Key: r.Namespace + "." + r.Service + "." + r.ID, State: r.State, Revision: revision, Value: r}
	if deleted {
		it.Value = nil
	}
	touched := map[*service]struct{}{}
	if s := c.take(&it, deleted); s != nil {
		touched[s] = struct{}{}
	}
	c.advance(revision, touched)
}

func record(id, state string, change ...func(*instance.Record)) *instance.Record {
	r := &instance.Record{
		Namespace: "default", Service: "web", ID: id, State: state, Since: noon, Generation: 1, Version: 3,
		Data: instance.Known{NodeAddress: "10.0.0.1:80", Weight: 100, Terms: new(instance.Terms)},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func ids(all []Endpoint) (out []string) {
	for _, e := range all {
		out = append(out, e.InstanceID)
	}
	return out
}

var states = []string{
	instance.Pending, instance.Unknown, instance.Warming, instance.Healthy, instance.Suspect,
	instance.Unhealthy, instance.Flapping, instance.Draining, instance.Deregistered,
}

// world is the model: all records, and when each service last changed.
type world struct {
	all     map[string]entry
	changed map[string]uint64
}

func (w *world) find(q Query, now time.Time) (found []Endpoint) {
	for _, key := range slices.Sorted(maps.Keys(w.all)) {
		e := w.all[key]
		r := e.rec
		n := instance.Weight(&r.Data, r.State, r.Since, now)
		ok := n > 0 && instance.Routable(r.State, &r.Data, now) || q.Draining && r.State == instance.Draining
		ok = ok && r.Namespace == q.Namespace && r.Service == q.Service && (q.Zone == "" || r.Data.Zone == q.Zone) && (q.Version == "" || r.Data.Version == q.Version)
		for _, tag := range q.Tags {
			ok = ok && slices.Contains(r.Data.Tags, tag)
		}
		for k, v := range q.Meta {
			ok = ok && r.Data.Payload[k] == v && v != ""
		}
		if ok {
			ep := endpoint(e, max(n, 0))
			found = append(found, ep)
		}
	}
	if slices.ContainsFunc(found, func(e Endpoint) bool { return e.Zone == q.Prefer && e.Weight > 0 }) && q.Prefer != "" {
		found = slices.DeleteFunc(found, func(e Endpoint) bool { return e.Zone != q.Prefer })
	}
	return found
}

func draw(t *rapid.T) *instance.Record {
	pick := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	r := &instance.Record{
		Namespace: pick("namespace", "default", "acme"), Service: pick("service", "web", "db"), ID: pick("id", "a", "b", "c", "d", "e"),
		State: pick("state", states...), Since: noon, Generation: uint64(rapid.IntRange(1, 3).Draw(t, "generation")),
		Data: instance.Known{
			NodeAddress: "10.0.0.1:80", Zone: pick("zone", "", "north", "south"), Version: pick("version", "", "1", "2"), Weight: rapid.IntRange(0, 3).Draw(t, "weight"),
			Tags: rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y"}), 0, 2).Draw(t, "tags"), Terms: &instance.Terms{Policy: instance.Policy{Warmup: "10s"}},
		},
	}
	if rapid.Bool().Draw(t, "payload") {
		r.Data.Payload = map[string]string{"team": pick("team", "red", "blue")}
	}
	if rapid.Bool().Draw(t, "maintenance") {
		r.Data.Maintenance = &instance.Maintenance{Until: noon.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "until")) * time.Second)}
	}
	if rapid.Bool().Draw(t, "pinned") {
		n := rapid.IntRange(0, 2).Draw(t, "pin")
		r.Data.Pinned = &n
	}
	return r
}

func ask(t *rapid.T) Query {
	q := Query{
		Namespace: rapid.SampledFrom([]string{"default", "acme", "other"}).Draw(t, "in"), Service: rapid.SampledFrom([]string{"web", "db", "none"}).Draw(t, "of"),
		Draining: rapid.Bool().Draw(t, "draining"), Zone: rapid.SampledFrom([]string{"", "", "", "north"}).Draw(t, "only zone"),
		Version: rapid.SampledFrom([]string{"", "", "", "1"}).Draw(t, "only version"), Prefer: rapid.SampledFrom([]string{"", "", "south", "mars"}).Draw(t, "prefer"),
	}
	if rapid.IntRange(0, 3).Draw(t, "tagged") == 0 {
		q.Tags = []string{"x"}
	}
	if rapid.IntRange(0, 3).Draw(t, "described") == 0 {
		q.Meta = map[string]string{"team": "red"}
	}
	return q
}

// Whatever happens to the instances, and whatever the clock says, what is found is what a look at all of them finds.
func TestFindsWhatALookAtAllFinds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := noon
		c, w := fed(&now), &world{all: map[string]entry{}, changed: map[string]uint64{}}
		for revision := uint64(1); revision < uint64(rapid.IntRange(2, 40).Draw(t, "steps")); revision++ {
			r := draw(t)
			key, name := r.Namespace+"."+r.Service+"."+r.ID, r.Namespace+"."+r.Service
			old, there := w.all[key]
			if gone := rapid.IntRange(0, 9).Draw(t, "gone") == 0; gone {
				if there && old.rec.State != instance.Deregistered {
					w.changed[name] = revision
				}
				delete(w.all, key)
				c.feed(revision, true, r)
			} else {
				if there && !(old.rec.State == instance.Deregistered && r.State == instance.Deregistered) || !there {
					w.changed[name] = revision
				}
				w.all[key] = entry{r, revision}
				c.feed(revision, false, r)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "later")) * time.Second)
			q := ask(t)
			got, want := c.Find(q), w.find(q, now)
			require.Equal(t, revision, got.Index)
			require.Equal(t, w.changed[q.Namespace+"."+q.Service], got.Changed)
			require.Empty(t, diff(want, got.Endpoints))
			chosen(t, c, q, want)
		}
		var live []string
		for _, e := range w.all {
			if e.rec.Namespace == "default" && e.rec.State != instance.Deregistered && !slices.Contains(live, e.rec.Service) {
				live = append(live, e.rec.Service)
			}
		}
		slices.Sort(live)
		require.Equal(t, live, populated(c))
	})
}

func diff(want, got []Endpoint) string {
	if w, g := fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got); w != g {
		return "want " + w + "\ngot  " + g
	}
	return ""
}

// chosen checks a choice: of those that are found, by weight, and with a key the same for everybody.
func chosen(t *rapid.T, c *Catalog, q Query, all []Endpoint) {
	var able []string
	for _, e := range all {
		if e.Weight > 0 {
			able = append(able, e.InstanceID)
		}
	}
	q.Choose = rapid.IntRange(1, 6).Draw(t, "choose")
	random := ids(c.Find(q).Endpoints)
	require.Len(t, random, min(q.Choose, len(able)))
	require.Subset(t, able, random)
	q.Key = rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "key")
	once, again := ids(c.Find(q).Endpoints), ids(c.Find(q).Endpoints)
	require.Equal(t, once, again)
	require.Len(t, once, len(random))
	if len(once) > 1 { // the first of n is the choice of one
		q.Choose = 1
		require.Equal(t, once[:1], ids(c.Find(q).Endpoints))
	}
}

func TestRendezvousMovesOnlyWhatItMust(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	for i := range 10 {
		c.feed(uint64(i+1), false, record(fmt.Sprintf("i%d", i), instance.Healthy, func(r *instance.Record) {
			if i == 0 {
				r.Data.Weight = 300
			}
		}))
	}
	where := func() map[string]string {
		m := map[string]string{}
		for k := range 12_000 {
			key := fmt.Sprintf("user-%d", k)
			m[key] = c.Find(Query{Namespace: "default", Service: "web", Choose: 1, Key: key}).Endpoints[0].InstanceID
		}
		return m
	}
	before := where()
	share := map[string]int{}
	for _, id := range before {
		share[id]++
	}
	require.InDelta(t, 3000, share["i0"], 250, "a quarter, as its weight is 300 of 1200")
	require.InDelta(t, 1000, share["i5"], 150)
	c.feed(11, false, record("i5", instance.Unhealthy))
	for key, id := range where() {
		if before[key] != "i5" {
			require.Equal(t, before[key], id, "only the keys of the one that went move")
		}
	}
	// Clients may compute the choice themselves: these numbers never change.
	require.Equal(t, "0.9038", fmt.Sprintf("%.4f", fraction("user-1", "a")))
}

func TestWeightsChangeByThemselves(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	c.feed(1, false, record("a", instance.Warming, func(r *instance.Record) { r.Data.Policy.Warmup = "10s" }))
	c.feed(2, false, record("b", instance.Healthy, func(r *instance.Record) {
		r.Data.Maintenance = &instance.Maintenance{Until: noon.Add(4 * time.Second)}
	}))
	q := Query{Namespace: "default", Service: "web"}
	weights := func() (all []string) {
		for _, e := range c.Find(q).Endpoints {
			all = append(all, fmt.Sprintf("%s=%d", e.InstanceID, e.Weight))
		}
		return all
	}
	require.Equal(t, []string{"a=10"}, weights())
	first := string(c.Snapshot("default", "web").Instances())
	now = noon.Add(5 * time.Second)
	require.Equal(t, []string{"a=50", "b=100"}, weights())
	require.NotEqual(t, first, string(c.Snapshot("default", "web").Instances()))
	require.EqualValues(t, 2, c.Find(q).Changed, "nothing was written")
	require.Same(t, c.Snapshot("default", "web"), c.Snapshot("default", "web"))
}

func TestWatchIsWokenByItsServiceOnly(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	c.feed(1, false, record("a", instance.Healthy))
	woken := func(w <-chan struct{}) bool {
		select {
		case <-w:
			return true
		default:
			return false
		}
	}
	web, none := c.Watch("default", "web", 1), c.Watch("default", "none", 0)
	require.True(t, woken(c.Watch("default", "web", 0)), "it has changed since")
	c.feed(2, false, record("x", instance.Healthy, func(r *instance.Record) { r.Service = "db" }))
	c.feed(3, false, record("a", instance.Healthy, func(r *instance.Record) { r.Namespace = "acme" }))
	require.False(t, woken(web))
	require.False(t, woken(none))
	c.feed(4, false, record("a", instance.Unhealthy))
	require.True(t, woken(web))
	require.False(t, woken(none))
	c.feed(5, false, record("n", instance.Pending, func(r *instance.Record) { r.Service = "none" }))
	require.True(t, woken(none))
	require.Empty(t, c.strangers)

	t.Run("ProtectionStirs", func(t *testing.T) {
		sn, stir := c.Stir("default", "web")
		require.False(t, sn.Protected)
		web := c.Watch("default", "web", 4)
		c.guard("default.web.north", true)
		require.True(t, woken(stir))
		require.False(t, woken(web))
		require.True(t, c.Find(Query{Namespace: "default", Service: "web"}).Protected)
		c.guard("default.web.south", true)
		c.guard("default.web.north", false)
		require.True(t, c.Find(Query{Namespace: "default", Service: "web"}).Protected)
		c.guard("default.web.south", false)
		require.False(t, c.Find(Query{Namespace: "default", Service: "web"}).Protected)
		c.guard("default.later.none", true)
		c.feed(6, false, record("l", instance.Healthy, func(r *instance.Record) { r.Service = "later" }))
		require.True(t, c.Find(Query{Namespace: "default", Service: "later"}).Protected)
	})
	t.Run("StrangersAreBounded", func(t *testing.T) {
		first := c.Watch("default", "stranger-0", 0)
		for i := range maxStrangers {
			c.Watch("default", fmt.Sprintf("stranger-%d", i+1), 0)
		}
		require.True(t, woken(first), "it asks again")
		require.LessOrEqual(t, len(c.strangers), maxStrangers)
	})
}

func TestWhatCannotBeReadStays(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	c.feed(1, false, record("a", instance.Healthy))
	require.Nil(t, c.take(&index.Item{Key: "default.web.a", Revision: 2, Problem: "schema 9"}, false))
	require.Equal(t, []string{"a"}, ids(c.Find(Query{Namespace: "default", Service: "web"}).Endpoints))
	c.feed(3, false, record("a", instance.Deregistered))
	r := c.Find(Query{Namespace: "default", Service: "web", Draining: true})
	require.Empty(t, r.Endpoints)
	require.True(t, r.Known)
	require.Equal(t, []string{"web"}, c.Locate("default", "a"), "it had it")
	require.Empty(t, populated(c))
	c.feed(4, true, record("a", ""))
	require.Empty(t, c.Locate("default", "a"))
	require.Equal(t, Summary{Service: "web", Namespace: "default", States: map[string]int{}, Changed: 3}, c.Summaries("default")[0])
}

func TestInstancesOfASnapshot(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	require.Nil(t, c.Snapshot("default", "web"))
	c.feed(7, false, record("b", instance.Healthy, func(r *instance.Record) {
		r.Data.Zone, r.Data.Tags, r.Data.Payload = "north", []string{"x"}, map[string]string{"a": "<b>"}
	}))
	c.feed(8, false, record("a", instance.Healthy))
	require.Equal(t, strings.Join([]string{
		`[{"instanceId":"a","nodeAddress":"10.0.0.1:80","payload":{},"weight":100,"state":"active.healthy","generation":1,"revision":8,"since":"2026-05-04T12:00:00Z"}`,
		`{"instanceId":"b","nodeAddress":"10.0.0.1:80","payload":{"a":"<b>"},"zone":"north","tags":["x"],"weight":100,"state":"active.healthy","generation":1,"revision":7,"since":"2026-05-04T12:00:00Z"}]`,
	}, ","), string(c.Snapshot("default", "web").Instances()))
	require.Equal(t, "[]", string(List(nil)))
}

func TestAnswersThatNobodyAsksForAreForgotten(t *testing.T) {
	t.Parallel()
	now := noon
	c := fed(&now)
	c.feed(7, false, record("a", instance.Healthy))
	first := c.Snapshot("default", "web")
	s := c.service("default", "web")
	s.cool()
	require.Same(t, first, c.Snapshot("default", "web"), "it was asked for")
	s.cool()
	require.Same(t, first, s.now.Load(), "and again")
	s.cool()
	require.Nil(t, s.now.Load())
	require.Equal(t, 1, c.Stats().Found)
	require.Nil(t, s.now.Load(), "counting makes none")
	again := c.Snapshot("default", "web")
	require.Equal(t, first.Found, again.Found)
	require.Equal(t, first.Changed, again.Changed)
}

// populated are the services of the namespace default that have instances which have not ended.
func populated(c *Catalog) (names []string) {
	for _, s := range c.Summaries("default") {
		if s.Instances > 0 {
			names = append(names, s.Service)
		}
	}
	return names
}
