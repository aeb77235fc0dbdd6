package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
