package heartbeat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A heartbeat says what its members are called, or nothing: one that says critical must not be taken for passing.
func TestNamesInHeartbeatsAreExact(t *testing.T) {
	t.Parallel()
	require.Equal(t, "critical", Read([]byte(`{"status":"critical","generation":3}`)).Status)
	for _, body := range []string{`{"Status":"critical"}`, `{"status":"passing","STATUS":"critical"}`, `{"stauts":"critical"}`, `{"status":"failing"}`, `{} {}`, `{"inFlight":-1}`, `[]`} {
		require.Nil(t, Read([]byte(body)), body)
	}
}
