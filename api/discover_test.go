package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/streams"
)

// catalogued is a door with the machine of the instances and a catalog behind it. What an owner does for an instance, the
// test does.
type catalogued struct {
	*bundle
	catalog *discovery.Catalog
	cut     func() // it hears nothing of the instances any more
}

func discovering(t *testing.T, change ...func(*api.Options)) *catalogued {
	t.Helper()
	r := &catalogued{}
	r.bundle = setup(t, append([]func(*api.Options){func(o *api.Options) {
		_, err := streams.Ensure(t.Context(), o.JS, streams.Plan{States: []string{"instances", "preservations"}})
		require.NoError(t, err)
		instances := index.New(o.JS, "instances", func(_ string, value []byte) (index.Meta, error) {
			meta, err := index.DescribeJSON(value)
			if err == nil {
				meta.Value, err = instance.Decode(value)
			}
			return meta, err
		}, index.Options{})
		guards := index.New(o.JS, "preservations", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
		r.catalog = discovery.New(discovery.Options{Instances: instances, Preservations: guards, History: discovery.History{JS: o.JS}})
		ctx, cancel := context.WithCancel(context.Background())
		heard, cut := context.WithCancel(ctx)
		r.cut = cut
		var running sync.WaitGroup
		running.Go(func() { _ = instances.Run(heard) })
		for _, run := range []func(context.Context) error{guards.Run, r.catalog.Run} {
			running.Go(func() { _ = run(ctx) })
		}
		t.Cleanup(func() {
			cancel()
			running.Wait()
		})
		<-r.catalog.Ready()
		require.NoError(t, o.Machines.Add(instance.Machine))
		o.Indexes.Set(instance.Machine.Name, instances)
		o.Discovery = r.catalog
	}}, change...)...)
	return r
}

// register registers an instance and returns its answer.
func (r *catalogued) register(service, id, more string) map[string]any {
	r.t.Helper()
	a := r.post("/v1/register", fmt.Sprintf(`{"serviceName":%q,"instanceId":%q,"nodeAddress":"10.0.0.1:80"%s}`, service, id, more))
	require.Equal(r.t, 202, a.StatusCode, string(a.body))
	return a.json(r.t)
}

// tell sends a report as an owner does, and returns the revision that it led to.
func (r *catalogued) tell(service, id, name, body string) uint64 {
	r.t.Helper()
	raw, err := json.Marshal(machines.Report{Data: json.RawMessage(body)})
	require.NoError(r.t, err)
	m, err := r.nc.Request(streams.Names{}.Command("instance", "default."+service+"."+id, name), raw, soon)
	require.NoError(r.t, err)
	var ack struct{ Seq uint64 }
	require.NoError(r.t, json.Unmarshal(m.Data, &ack)) // the stream's; the engine's answer goes to Instar-Reply only
	require.Eventually(r.t, func() bool { return r.settled(ack.Seq) }, soon, 2*time.Millisecond)
	r.engine.mu.Lock()
	revision := r.engine.revision["instance/default."+service+"."+id]
	r.engine.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.t.Context(), soon)
	defer cancel()
	require.NoError(r.t, r.catalog.Wait(ctx, revision))
	return revision
}

// settled reports whether the toy engine has taken a command.
func (r *catalogued) settled(seq uint64) bool {
	r.engine.mu.Lock()
	defer r.engine.mu.Unlock()
	if r.engine.last == nil {
		return false
	}
	meta, err := r.engine.last.Metadata()
	return err == nil && meta.Sequence.Stream >= seq
}

// healthy registers an instance that is found.
func (r *catalogued) healthy(service, id, more string) uint64 {
	r.t.Helper()
	r.register(service, id, more)
	return r.tell(service, id, instance.ReportPersisted, `{}`)
}

// pin changes an instance of web, and waits until the index knows.
func (r *catalogued) pin(id string, weight int) {
	r.t.Helper()
	a := r.post("/v1/services/web/instances/"+id+"/pin", fmt.Sprintf(`{"weight":%d}`, weight))
	require.Equal(r.t, 200, a.StatusCode, string(a.body))
	require.Equal(r.t, 200, r.get(fmt.Sprintf("/v1/services/web/instances?limit=1&minRevision=%.0f", a.json(r.t)["revision"])).StatusCode)
}

func found(t testing.TB, a answer) (ids []string) {
	t.Helper()
	require.Equal(t, 200, a.StatusCode, string(a.body))
	ids = []string{}
	for _, one := range a.json(t)["instances"].([]any) {
		ids = append(ids, one.(map[string]any)["instanceId"].(string))
	}
	return ids
}

// The three calls of the first design keep their names, members and codes.
func TestTheFirstDesignsCalls(t *testing.T) {
	r := discovering(t)
	a := r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080","payload":{"region":"eu"}}`)
	require.Equal(t, 202, a.StatusCode, string(a.body))
	got := a.json(t)
	id := got["instanceId"].(string)
	require.Equal(t, instance.InstanceID("default", "web", "10.0.0.7:8080"), id)
	require.Equal(t, instance.Pending, got["state"])
	require.EqualValues(t, 1, got["generation"])
	require.Empty(t, found(t, r.get("/v1/discover/web")), "nothing is found before it is admitted")
	written := make(chan answer, 1)
	go func() { written <- r.get(fmt.Sprintf("/v1/discover/web?minRevision=%.0f", got["revision"])) }()
	r.metric(`instar_limit_held{limit="waits"} 1`)

	revision := r.tell("web", id, instance.ReportPersisted, `{}`)
	require.Equal(t, []string{id}, found(t, <-written), "who has registered reads that")
	a = r.get(fmt.Sprintf("/v1/discover/web?minRevision=%d", revision))
	require.Equal(t, []string{id}, found(t, a))
	one := a.json(t)["instances"].([]any)[0].(map[string]any)
	require.Equal(t, "10.0.0.7:8080", one["nodeAddress"])
	require.Equal(t, map[string]any{"region": "eu"}, one["payload"])
	require.EqualValues(t, 100, one["weight"])
	require.Equal(t, a.Header.Get("X-Instar-Index"), fmt.Sprint(a.json(t)["index"]))
	require.Equal(t, map[string]any{"service": "web", "namespace": "default", "index": float64(revision), "changed": float64(revision), "protected": false, "instances": a.json(t)["instances"]}, a.json(t))
	require.Empty(t, found(t, r.get("/v1/discover/nobody")), "200 and nothing, as the first design and Consul do")

	t.Run("MissingIs400", func(t *testing.T) {
		for _, body := range []string{`{}`, `{"serviceName":"web"}`, `{"nodeAddress":"10.0.0.7:8080"}`, `{"serviceName":"","nodeAddress":"10.0.0.7:8080"}`, `{"serviceName":null,"nodeAddress":"10.0.0.7:8080"}`} {
			r.post("/v1/register", body).problem(t, 400, "incomplete")
		}
		r.post("/v1/register", `[]`).problem(t, 400, "malformed")
		r.post("/v1/register", `{"serviceName":`).problem(t, 400, "malformed")
	})
	t.Run("WrongIs422", func(t *testing.T) {
		before := r.stored()
		for _, more := range []string{`"zone":7`, `"weight":-1`, `"weight":70000`, `"instanceId":"A B"`, `"unknown":true`, `"namespace":"*"`, `"check":{"type":"magic"}`, `"check":{}`} {
			r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080",`+more+`}`).problem(t, 422, "validation")
		}
		r.post("/v1/register", `{"serviceName":"We.b","nodeAddress":"10.0.0.7:8080"}`).problem(t, 422, "validation")
		r.post("/v1/register?namespace=one", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080","namespace":"two"}`).problem(t, 422, "validation")
		require.Equal(t, before, r.stored(), "nothing of it was stored")
		for _, more := range []string{`"check":{"type":"ttl","ttl":"1ms"}`, `"policy":{"warmup":"soon"}`} { // the engine judges these
			r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080",`+more+`}`).problem(t, 422, "validation")
		}
		r.post("/v1/register", `{"serviceName":"web","nodeAddress":"no-port"}`).problem(t, 422, "validation")
	})
	t.Run("SameAddressIsTheNextGeneration", func(t *testing.T) {
		got := r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080"}`).json(t)
		require.Equal(t, id, got["instanceId"])
		require.EqualValues(t, 2, got["generation"])
		r.post(fmt.Sprintf("/v1/deregister/%s?generation=1", id), "").problem(t, 409, "guard-rejected")
	})
	t.Run("KeyMakesItRepeatable", func(t *testing.T) {
		once := r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.8:8080"}`, "Idempotency-Key", "k1").json(t)
		again := r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.8:8080"}`, "Idempotency-Key", "k1")
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, once, again.json(t))
	})
	t.Run("Deregister", func(t *testing.T) {
		r.tell("web", id, instance.ReportPersisted, `{}`)
		a := r.post("/v1/deregister/"+id, "", "Instar-Reason", "deploy")
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "it drains", a.json(t)["message"])
		require.Equal(t, instance.Draining, a.json(t)["state"])
		at := fmt.Sprintf("minRevision=%.0f", a.json(t)["revision"])
		require.Empty(t, found(t, r.get("/v1/discover/web?"+at)))
		require.Equal(t, []string{id}, found(t, r.get("/v1/discover/web?include=draining&"+at)))
		a = r.post("/v1/deregister/"+id+"?force=true", "")
		require.Equal(t, "it is deregistered", a.json(t)["message"])
		require.Equal(t, 202, r.post("/v1/deregister/"+id, "").StatusCode, "it has ended already")
		r.post("/v1/deregister/never", "").problem(t, 404, "not-found")
		r.post("/v1/deregister/"+id+"?namespace=other", "").problem(t, 404, "not-found")
		r.post("/v1/deregister/"+id+"?service=db", "").problem(t, 404, "not-found")
		r.post("/v1/deregister/A%20B", "").problem(t, 422, "validation")
	})
	t.Run("IdOfTwoServices", func(t *testing.T) {
		r.register("web", "twin", "")
		at := r.register("db", "twin", "")["revision"]
		r.get(fmt.Sprintf("/v1/discover/db?minRevision=%.0f", at)) // an id without its service is looked up in the index
		p := r.post("/v1/deregister/twin?force", "").problem(t, 422, "validation")
		require.Contains(t, p["detail"], "db, web")
		require.Equal(t, 202, r.post("/v1/deregister/twin?force&service=db", "").StatusCode)
	})
	t.Run("RolesAndNamespaces", func(t *testing.T) {
		for token, want := range map[string]int{"read-token": 403, "nonsense": 401} {
			require.Equal(t, want, r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080"}`, "Authorization", "Bearer "+token).StatusCode)
		}
		require.Equal(t, 200, r.get("/v1/discover/web", "Authorization", "Bearer read-token").StatusCode)
		a := r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080"}`, "Authorization", "Bearer tenant-token")
		require.Equal(t, "acme", a.json(t)["namespace"])
		r.post("/v1/register", `{"serviceName":"web","nodeAddress":"10.0.0.7:8080","namespace":"default"}`, "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
		r.get("/v1/discover/web?namespace=default", "Authorization", "Bearer tenant-token").problem(t, 404, "not-found")
	})
}

// Whoever registers and then asks with the revision that it was told sees what it did.
func TestRegisterThenDiscover(t *testing.T) {
	r := discovering(t)
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for i := range 15 {
				id := fmt.Sprintf("n%d-%d", n, i)
				a := r.post("/v1/register", fmt.Sprintf(`{"serviceName":"web","instanceId":%q,"nodeAddress":"10.0.0.1:80"}`, id))
				revision := a.json(t)["revision"].(float64)
				all := r.get(fmt.Sprintf("/v1/discover?minRevision=%.0f", revision)).json(t)
				if all["index"].(float64) < revision {
					t.Errorf("index %v at revision %v", all["index"], revision)
				}
				if a := r.post("/v1/deregister/"+id+"?force", ""); a.StatusCode != 202 {
					t.Errorf("%s is not known: %s", id, a.body)
				}
			}
		})
	}
	all.Wait()
	r.get("/v1/discover/web?minRevision=999999").problem(t, 422, "validation")
}

func TestDiscoverFilters(t *testing.T) {
	r := discovering(t)
	r.healthy("web", "a", `,"zone":"north","version":"1","tags":["x"],"payload":{"team":"red"}`)
	r.healthy("web", "b", `,"zone":"south","version":"1","tags":["x","y"],"payload":{"team":"blue","note":"a=b"}`)
	r.healthy("web", "c", `,"zone":"south","version":"2","weight":0`)
	revision := r.healthy("web", "d", `,"zone":"south","version":"2"`)
	for query, want := range map[string]string{
		"": "a b d", "zone=south": "b d", "version=1": "a b", "tag=x": "a b", "tag=x&tag=y": "b", "meta=team%3Dred": "a", "meta=note%3Da%3Db": "b",
		"meta=team%3Dblue&meta=note%3Da%3Db": "b", "prefer=north": "a", "prefer=mars": "a b d", "zone=south&version=2": "d", "choose=9": "*3", "choose=2": "*2", "choose=1&key=k": "*1",
	} {
		got := found(t, r.get(fmt.Sprintf("/v1/discover/web?minRevision=%d&%s", revision, query)))
		if n, sized := strings.CutPrefix(want, "*"); sized {
			require.Equal(t, n, fmt.Sprint(len(got)), query)
			continue
		}
		require.Equal(t, want, strings.Join(got, " "), query)
	}
	once := found(t, r.get("/v1/discover/web?choose=2&key=user-7"))
	require.Equal(t, once, found(t, r.get("/v1/discover/web?choose=2&key=user-7")))
	for _, bad := range []string{
		"key=k", "choose=0", "choose=x", "meta=team", "meta=%3Dx", "meta=a%3D1&meta=a%3D2", "include=dead", "wait=5s", "index=1&wait=x", "index=1&wait=-1s", "index=-1", "at=yesterday", "at=0",
		"at=5&index=1", "zone=a&zone=b", "unknown=1", "namespace=A.B", strings.Repeat("&tag=x", 17)[1:],
	} {
		r.get("/v1/discover/web?"+bad).problem(t, 422, "validation")
	}
	r.get("/v1/discover/UPPER").problem(t, 422, "validation")

	t.Run("Services", func(t *testing.T) {
		r.register("db", "p", "")
		r.post("/v1/register", `{"serviceName":"other","nodeAddress":"10.0.0.7:8080","namespace":"acme"}`)
		require.Eventually(t, func() bool { return len(r.catalog.Summaries("")) == 3 }, soon, time.Millisecond)
		list := r.get("/v1/discover").json(t)["services"].([]any)
		require.Len(t, list, 2)
		require.Equal(t, map[string]any{"service": "db", "namespace": "default", "instances": 1.0, "found": 0.0, "draining": 0.0, "states": map[string]any{instance.Pending: 1.0}, "changed": list[0].(map[string]any)["changed"]}, list[0])
		require.Equal(t, 4.0, list[1].(map[string]any)["instances"])
		require.Equal(t, 3.0, list[1].(map[string]any)["found"])
		require.Len(t, r.get("/v1/discover?namespace=*").json(t)["services"], 3)
	})
}

func TestBlockingReadWakesForItsServiceOnly(t *testing.T) {
	r := discovering(t)
	index := r.healthy("web", "a", "")
	type woken struct {
		a    answer
		took time.Duration
	}
	block := func(path string) chan woken {
		done := make(chan woken, 1)
		start := time.Now()
		go func() { done <- woken{r.get(path), time.Since(start)} }()
		return done
	}
	web := block(fmt.Sprintf("/v1/discover/web?index=%d&wait=20s", index))
	none := block("/v1/discover/later?index=1&wait=20s")
	require.Eventually(t, func() bool { return strings.Contains(string(r.get("/metrics").body), "instar_sse_clients 2") }, soon, 5*time.Millisecond, "both have a seat")
	last := uint64(0)
	for i := range 10 {
		last = r.healthy("db", fmt.Sprintf("x%d", i), "")
	}
	select {
	case <-web:
		t.Fatal("woken by another service")
	case <-none:
		t.Fatal("woken by another service")
	case <-time.After(50 * time.Millisecond):
	}
	b := r.healthy("web", "b", "")
	got := <-web
	require.Contains(t, found(t, r.get(fmt.Sprintf("/v1/discover/web?minRevision=%d", b))), "b")
	require.Greater(t, got.a.json(t)["changed"], float64(index))
	r.register("later", "l", "")
	require.Greater(t, (<-none).a.json(t)["changed"], float64(last))

	t.Run("WaitEnds", func(t *testing.T) {
		got := <-block(fmt.Sprintf("/v1/discover/web?index=%d&wait=50ms", b))
		require.Equal(t, 200, got.a.StatusCode)
		require.GreaterOrEqual(t, got.took, 50*time.Millisecond)
		require.Less(t, got.took, 15*time.Second)
	})
	t.Run("AnOldIndexAnswersAtOnce", func(t *testing.T) {
		require.Less(t, (<-block(fmt.Sprintf("/v1/discover/web?index=%d&wait=20s", index))).took, 15*time.Second)
		require.Less(t, (<-block("/v1/discover/web?index=0&wait=20s")).took, 15*time.Second)
	})
	t.Run("ClosingAnswers", func(t *testing.T) {
		blocked := block(fmt.Sprintf("/v1/discover/web?index=%d&wait=20s", b))
		require.Eventually(t, func() bool { return strings.Contains(string(r.get("/metrics").body), "instar_sse_clients 1") }, soon, 5*time.Millisecond)
		require.NoError(t, r.server.Close())
		require.Equal(t, 200, (<-blocked).a.StatusCode)
	})
}

func TestWhoAsksIsToldWhenInstancesWereHeard(t *testing.T) {
	r := discovering(t)
	r.get("/v1/services/web/heartbeats").problem(t, 503, "unavailable")
	for _, id := range []string{"a", "b", "c"} {
		r.healthy("web", id, "")
	}
	sub, err := r.nc.Subscribe(streams.Names{}.Heard(), func(m *nats.Msg) {
		switch string(m.Data) {
		case "default.web a b c":
			_ = m.Respond([]byte(`{"b":12,"a":3400}`))
		case "default.web a b":
			_ = m.Respond([]byte(`{"a":1}`))
		case "default.web c":
			_ = m.Respond([]byte(`{"c":2}`))
		}
	})
	require.NoError(t, err)
	require.NoError(t, r.nc.Flush())
	a := r.get("/v1/services/web/heartbeats")
	require.Equal(t, 200, a.StatusCode)
	require.JSONEq(t, `{"service":"web","namespace":"default","instances":[{"instanceId":"a","ageMillis":3400},{"instanceId":"b","ageMillis":12}]}`, string(a.body))
	require.JSONEq(t, `{"service":"web","namespace":"default","instances":[{"instanceId":"a","ageMillis":1}],"nextCursor":"b"}`, string(r.get("/v1/services/web/heartbeats?limit=2").body))
	require.JSONEq(t, `{"service":"web","namespace":"default","instances":[{"instanceId":"c","ageMillis":2}]}`, string(r.get("/v1/services/web/heartbeats?limit=2&cursor=b").body))
	r.get("/v1/services/web/heartbeats?cursor=b.c").problem(t, 422, "validation")
	r.get("/v1/services/web.x/heartbeats").problem(t, 422, "validation")
	r.get("/v1/services/web/heartbeats?namespace=*").problem(t, 422, "validation")
	require.NoError(t, sub.Unsubscribe())
}

func TestHeartbeats(t *testing.T) {
	r := discovering(t)
	sub, err := r.nc.SubscribeSync(streams.Names{}.Heartbeats())
	require.NoError(t, err)
	require.NoError(t, r.nc.Flush())
	put := func(path, body string) answer { return r.do("PUT", path, body) }
	got := r.register("web", "a", `,"check":{"type":"ttl","ttl":"5s"}`)
	a := put("/v1/services/web/instances/a/heartbeat", fmt.Sprintf(`{"generation":%.0f,"status":"passing","output":"fine","inFlight":3,"weight":50}`, got["generation"]))
	require.Equal(t, 204, a.StatusCode, "an instance that was registered a moment ago is known: "+string(a.body))
	m, err := sub.NextMsg(soon)
	require.NoError(t, err)
	require.Equal(t, "instar.hb.default.web.a", m.Subject)
	require.JSONEq(t, `{"generation":1,"status":"passing","output":"fine","inFlight":3,"weight":50}`, string(m.Data))
	require.Equal(t, 204, put("/v1/services/web/instances/a/heartbeat", "").StatusCode)
	m, err = sub.NextMsg(soon)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(m.Data))

	require.Equal(t, 204, put("/v1/services/web/instances/a/heartbeat", `{"status":"failing"}`).StatusCode)
	m, err = sub.NextMsg(soon)
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"critical"}`, string(m.Data))

	put("/v1/services/web/instances/never/heartbeat", "").problem(t, 404, "not-found")
	put("/v1/services/web/instances/a/heartbeat", `{"status":"great"}`).problem(t, 422, "validation")
	put("/v1/services/web/instances/a/heartbeat", `{"weight":-1}`).problem(t, 422, "validation")
	put("/v1/services/web/instances/a/heartbeat", `{`).problem(t, 400, "malformed")
	put("/v1/services/web/instances/*/heartbeat", ``).problem(t, 422, "validation")
	second := r.register("web", "a", "")
	revision := uint64(second["revision"].(float64))
	require.NoError(t, r.catalog.Wait(t.Context(), revision))
	put("/v1/services/web/instances/a/heartbeat", `{"generation":1}`).problem(t, 409, "guard-rejected")
	require.Equal(t, 204, put("/v1/services/web/instances/a/heartbeat", `{"generation":2}`).StatusCode)
	put("/v1/services/web/instances/a/heartbeat", `{"generation":3}`).problem(t, 410, "gone")
	ended := r.post("/v1/deregister/a?force", "").json(t)
	require.NoError(t, r.catalog.Wait(t.Context(), uint64(ended["revision"].(float64))))
	require.Equal(t, instance.Deregistered, put("/v1/services/web/instances/a/heartbeat", "").problem(t, 410, "gone")["currentState"])
	a = r.do("DELETE", "/v1/services/web/instances/a/heartbeat", "")
	require.Equal(t, "PUT", a.Header.Get("Allow"))

	t.Run("WatchersAcknowledge", func(t *testing.T) {
		acks, err := r.nc.SubscribeSync(streams.Names{}.Acknowledgements())
		require.NoError(t, err)
		require.NoError(t, r.nc.Flush())
		require.Equal(t, 204, r.post("/v1/services/web/watchers/w1", `{"index":17}`, "Authorization", "Bearer read-token").StatusCode)
		m, err := acks.NextMsg(soon)
		require.NoError(t, err)
		require.Equal(t, "instar.ack.default.web", m.Subject)
		require.JSONEq(t, `{"watcher":"http:reader/w1","index":17}`, string(m.Data))
		require.Equal(t, 204, r.post("/v1/services/web/watchers/w1", `{"index":99}`, "Authorization", "Bearer operate-token").StatusCode)
		m, err = acks.NextMsg(soon)
		require.NoError(t, err)
		require.JSONEq(t, `{"watcher":"http:operator/w1","index":99}`, string(m.Data), "nobody speaks for the watcher of another token")
		r.post("/v1/services/web/watchers/w1", `{"watcher":"w2","index":17}`).problem(t, 422, "validation")
		r.post("/v1/services/web/watchers/w1", `{}`).problem(t, 422, "validation")
		r.post("/v1/services/web/watchers/w1", "").problem(t, 422, "validation")
		_, err = acks.NextMsg(20 * time.Millisecond)
		require.ErrorIs(t, err, nats.ErrTimeout)
	})
}
