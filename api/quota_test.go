package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/streams"
)

// As many entities live in a namespace as may, whichever machine they are of and by whichever door they come. Others have room, and so is
// there when something has ended.
func TestEntitiesOfANamespace(t *testing.T) {
	r := discovering(t, func(o *api.Options) { o.Limits.Entities = 3 })
	require.NoError(t, r.server.Micro(t.Context()))
	create := func(id, query string, headers ...string) answer {
		return r.post("/v1/gadgets/"+id+"/create"+query, `{"spec":{"name":"x"}}`, headers...)
	}
	counted := func(n int) { r.metric(fmt.Sprintf(`instar_limit_held{limit="entities"} %d`, n)) }
	register := func() answer {
		return r.post("/v1/register", `{"serviceName":"web","instanceId":"i","nodeAddress":"10.0.0.9:80"}`)
	}

	require.Equal(t, http.StatusOK, create("a", "?settle=10s", "Idempotency-Key", "first").StatusCode)
	require.Equal(t, http.StatusOK, r.post("/v1/gadgets/a/parts/p/mount", `{}`).StatusCode)
	require.Equal(t, http.StatusAccepted, register().StatusCode)
	counted(3)
	before := r.stored()
	p := create("b", "").problem(t, http.StatusConflict, "quota-exceeded")
	require.Contains(t, p["detail"], "the namespace default has 3 entities that live, and may have 3")
	create("b", "", "Prefer", "respond-async").problem(t, http.StatusConflict, "quota-exceeded")
	create("b", "?dryRun").problem(t, http.StatusConflict, "quota-exceeded")
	r.post("/v1/register", `{"serviceName":"web","instanceId":"j","nodeAddress":"10.0.0.9:81"}`).problem(t, http.StatusConflict, "quota-exceeded")
	m := r.ask("instar.api.cmd.gadget.default.b.create", `{"spec":{"name":"x"}}`)
	require.Equal(t, "409", m.Header.Get(micro.ErrorCodeHeader), string(m.Data))
	require.Equal(t, before, r.stored(), "what is refused is not stored")
	r.metric(`instar_limit_refused_total{limit="entities",of="owner"} 5`)

	require.Equal(t, http.StatusAccepted, register().StatusCode, "it is there already, and registers again")
	require.Equal(t, http.StatusOK, r.post("/v1/gadgets/a/touch", "").StatusCode)
	require.Equal(t, "true", create("a", "", "Idempotency-Key", "first").Header.Get("Idempotent-Replayed"))
	require.Equal(t, http.StatusOK, create("b", "?namespace=acme").StatusCode, "another namespace")
	require.Equal(t, http.StatusOK, r.post("/v1/gadgets/a/parts/p/remove", "").StatusCode)
	counted(2)
	require.Equal(t, http.StatusOK, create("b", "").StatusCode)
}

// What cannot end takes nobody's place, and needs none: the records of preservation stay for ever, and the brake is to work at any time.
func TestTheQuotaIsOfWhatCanEnd(t *testing.T) {
	r := discovering(t, func(o *api.Options) {
		o.Limits.Entities = 1
		ix := index.New(o.JS, preservation.Machine.Plural, func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = ix.Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
		<-ix.Ready()
		require.NoError(t, o.Machines.Add(preservation.Machine))
		o.Indexes.Set(preservation.Machine.Name, ix)
	})
	hold := func(zone string) {
		a := r.post("/v1/services/web/preservations/"+zone+"/hold", "")
		require.Equal(t, http.StatusOK, a.StatusCode, string(a.body))
	}
	create := func(id string) answer { return r.post("/v1/gadgets/"+id+"/create?settle=10s", `{"spec":{"name":"x"}}`) }
	hold("a")
	hold("b")
	require.Equal(t, http.StatusOK, create("a").StatusCode)
	r.metric(`instar_limit_held{limit="entities"} 1`)
	create("b").problem(t, http.StatusConflict, "quota-exceeded")
	hold("c")
}

// A command that is stored under its sender's key is let through when the namespace has filled meanwhile: it is not refused, and nobody is
// told that it is not stored. Where that cannot be read, this is what is said.
func TestTheQuotaKnowsWhatIsStored(t *testing.T) {
	var blind atomic.Bool
	var again api.Options
	b := setup(t, func(o *api.Options) {
		o.Limits.Entities, o.AnswerWithin = 1, 300*time.Millisecond
		nc := o.NC
		sub, err := nc.Subscribe("FAULT.>", func(m *nats.Msg) {
			request := strings.TrimPrefix(m.Subject, "FAULT.")
			if blind.Load() && request == "STREAM.MSG.GET."+streams.CommandStream {
				_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
				return
			}
			_ = nc.PublishRequest("$JS.API."+request, m.Reply, m.Data)
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = sub.Unsubscribe() })
		o.JS, err = jetstream.NewWithAPIPrefix(nc, "FAULT")
		require.NoError(t, err)
		again = *o
	})
	create := func(id, key string, headers ...string) answer {
		return b.post("/v1/gadgets/"+id+"/create", `{"spec":{"name":"x"}}`, append(headers, "Idempotency-Key", key)...)
	}
	all, none := func(string) bool { return true }, func(string) bool { return false }
	b.engine.hush(all)
	require.Equal(t, http.StatusAccepted, create("a", "K", "Prefer", "respond-async").StatusCode)
	require.Eventually(t, func() bool { return b.engine.count.Load() == 1 }, soon, time.Millisecond, "it is taken, and not decided")
	create("b", "other").problem(t, http.StatusConflict, "quota-exceeded") // there may be one already
	b.engine.hush(none)
	b.anotherNode(again) // which has let nothing through
	b.ready("b")
	b.metric(`instar_limit_held{limit="entities"} 1`)
	b.engine.hush(all)

	for _, prefer := range []string{"", "respond-async"} {
		create("a", "K", "Prefer", prefer).problem(t, http.StatusConflict, "idempotency-in-progress")
	}
	b.metric(`instar_limit_refused_total{limit="entities",of="owner"} 0`)
	create("a", "L").problem(t, http.StatusConflict, "quota-exceeded")
	b.metric(`instar_limit_refused_total{limit="entities",of="owner"} 1`)
	blind.Store(true)
	p := create("a", "K").problem(t, http.StatusServiceUnavailable, "unavailable")
	require.Contains(t, p["detail"], "it is not known whether")
}

// What comes at once is counted before the indexes know of it, and what was refused by the engine only for a moment.
func TestAQuotaHoldsInABurst(t *testing.T) {
	const bound, all = 10, 60
	b := setup(t, func(o *api.Options) { o.Limits.Entities = bound })
	require.NoError(t, b.server.Micro(t.Context()))
	b.engine.slow.Store(int64(2 * time.Millisecond))
	var begun, refused atomic.Int64
	var sent sync.WaitGroup
	for i := range all {
		sent.Go(func() {
			id, spec, code := fmt.Sprint("g", i), `{"spec":{"name":"x"}}`, ""
			if i%2 == 0 {
				code = b.ask("instar.api.cmd.gadget.default."+id+".create", spec).Header.Get(micro.ErrorCodeHeader)
			} else if a := b.post("/v1/gadgets/"+id+"/create", spec); a.StatusCode != http.StatusOK {
				code = fmt.Sprint(a.StatusCode)
			}
			switch code {
			case "":
				begun.Add(1)
			case "409":
				refused.Add(1)
			}
		})
	}
	sent.Wait()
	require.EqualValues(t, bound, begun.Load())
	require.EqualValues(t, all-bound, refused.Load())
}

// What is not stored for certain takes no place: there is room as soon as there is room on the disk.
func TestTheQuotaCountsNothingThatIsNotStored(t *testing.T) {
	var full atomic.Bool
	b := setup(t, func(o *api.Options) {
		o.Limits.Entities = 2
		o.Commands.Gate = func() error {
			if full.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}
	})
	full.Store(true)
	for i := range 4 {
		b.post(fmt.Sprintf("/v1/gadgets/g%d/create", i), `{"spec":{"name":"x"}}`).problem(t, http.StatusServiceUnavailable, "unavailable")
	}
	full.Store(false)
	for i := range 2 {
		require.Equal(t, http.StatusOK, b.post(fmt.Sprintf("/v1/gadgets/n%d/create", i), `{"spec":{"name":"x"}}`).StatusCode)
	}
	b.post("/v1/gadgets/g/create", `{"spec":{"name":"x"}}`).problem(t, http.StatusConflict, "quota-exceeded")
}

// A command that is not stored, or refused, takes nothing from another one of the same entity: one that is not decided, or applied and not seen yet.
func TestTheQuotaKnowsWhatOfAnEntityIsUnderWay(t *testing.T) {
	var full atomic.Bool
	b := setup(t, func(o *api.Options) {
		o.Limits.Entities = 1
		o.Commands.Gate = func() error {
			if full.Load() {
				return errors.New("the disk is full")
			}
			return nil
		}
	})
	b.stop()
	create := func(id, key string, headers ...string) answer {
		return b.post("/v1/gadgets/"+id+"/create", `{"spec":{"name":"x"}}`, append(headers, "Idempotency-Key", key)...)
	}
	b.engine.hush(func(string) bool { return true })
	require.Equal(t, http.StatusAccepted, create("a", "k", "Prefer", "respond-async").StatusCode)
	full.Store(true)
	b.post("/v1/gadgets/a/touch", "").problem(t, http.StatusServiceUnavailable, "unavailable")
	create("a", "l").problem(t, http.StatusServiceUnavailable, "unavailable")
	full.Store(false)
	create("b", "m").problem(t, http.StatusConflict, "quota-exceeded")
	b.engine.hush(nil)
	require.Equal(t, "applied", create("a", "k").json(t)["outcome"])
	create("a", "n").problem(t, http.StatusConflict, "already-exists")
	create("b", "m").problem(t, http.StatusConflict, "quota-exceeded")
}
