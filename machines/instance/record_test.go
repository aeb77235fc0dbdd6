package instance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDecode(t *testing.T) {
	t.Parallel()
	r, err := Decode([]byte(`{"schema":1,"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":4,"generation":2,
		"since":"2026-01-02T03:04:05Z","data":{"nodeAddress":"10.0.0.1:80","weight":100,"check":{"type":"ttl","ttl":"10s"}},"mark":17,"commands":[{"id":"x"}]}`))
	require.NoError(t, err)
	require.Equal(t, &Record{
		Namespace: "default", Service: "web", ID: "a", State: Healthy, Version: 4, Generation: 2, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Data: Data{NodeAddress: "10.0.0.1:80", Weight: 100, Check: Check{Type: CheckTTL, TTL: "10s"}},
	}, r)
	for _, bad := range []string{
		``, `[]`, `{}`, `{"machine":"service","namespace":"default","parent":"web","id":"a","state":"active.healthy"}`,
		`{"machine":"instance","namespace":"default","id":"a","state":"active.healthy"}`, `{"machine":"instance","namespace":"default","parent":"web","id":"a","state":""}`,
	} {
		_, err := Decode([]byte(bad))
		require.Error(t, err, bad)
	}
}
