package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

// Without a key of its sender an id is made up, of which no answer is looked up or kept.
func TestRegistrationsWithoutAKey(t *testing.T) {
	r := discovering(t)
	r.healthy("web", "a", "")
	for _, path := range []string{"/v1/register", "/v1/deregister/a"} {
		a := r.post(path, `{"serviceName":"web","instanceId":"a","nodeAddress":"10.0.0.1:80"}`)
		require.True(t, streams.MadeUp(a.json(t)["commandId"].(string)), path)
	}
}

// An id that another service had before is found without saying which service is meant.
func TestDeregisterAfterAMove(t *testing.T) {
	r := discovering(t)
	r.healthy("old", "moved", "")
	require.Equal(t, 202, r.post("/v1/deregister/moved?force=true", "").StatusCode)
	r.healthy("new", "moved", "")
	require.Equal(t, "new", r.post("/v1/deregister/moved", "").json(t)["service"])
	r.healthy("old", "moved", "")
	r.healthy("new", "moved", "")
	r.post("/v1/deregister/moved", "").problem(t, 422, "validation")
}
