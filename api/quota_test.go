package api_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
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
