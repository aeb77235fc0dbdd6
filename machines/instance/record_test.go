package instance

import (
	"reflect"
	"strings"
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
		Data: Known{NodeAddress: "10.0.0.1:80", Weight: 100, Terms: &Terms{Check: Check{Type: CheckTTL, TTL: "10s"}}},
	}, r)
	for _, bad := range []string{
		``, `[]`, `{}`, `{"machine":"service","namespace":"default","parent":"web","id":"a","state":"active.healthy"}`,
		`{"machine":"instance","namespace":"default","id":"a","state":"active.healthy"}`, `{"machine":"instance","namespace":"default","parent":"web","id":"a","state":""}`,
	} {
		_, err := Decode([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestKnownLeavesNothingOut(t *testing.T) {
	t.Parallel()
	d, n, now := &Data{}, 7, time.Now()
	d.NodeAddress, d.Payload, d.Zone, d.Version, d.Tags, d.Weight = "10.0.0.1:80", map[string]string{"a": "b"}, "north", "1", []string{"x"}, n
	d.Terms = Terms{Check: Check{Type: CheckTTL}, Policy: Policy{Rise: n}}
	d.Retries, d.Suspicion, d.Flap, d.Maintenance, d.Pinned, d.Protected = n, &Suspicion{}, &Flap{}, &Maintenance{}, &n, true
	d.WarmSince, d.Overdue, d.Failing, d.Passing, d.Reported = now, now, []string{"a"}, []string{"b"}, &n
	known, data := reflect.ValueOf(d.Known()), reflect.ValueOf(*d)
	for _, f := range reflect.VisibleFields(known.Type()) {
		if f.Name == "Terms" {
			require.Equal(t, d.Terms, *d.Known().Terms)
			continue
		}
		require.False(t, known.FieldByName(f.Name).IsZero(), f.Name)
		require.Equal(t, data.FieldByName(f.Name).Interface(), known.FieldByName(f.Name).Interface(), f.Name)
	}
}

func TestInstanceID(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, address := range []string{"10.0.0.7:8080", "10-0-0-7:8080", "[2001:db8::1]:80", "WEB.example:80", "é:1", "x" + strings.Repeat("a", 300) + ":1", ":::", ""} {
		id := InstanceID("default", "web", address)
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id, "a UUID of version 5")
		require.Equal(t, id, InstanceID("default", "web", address))
		require.NotEqual(t, id, InstanceID("default", "db", address))
		require.NotEqual(t, id, InstanceID("acme", "web", address))
		require.False(t, seen[id])
		seen[id] = true
	}
	require.Equal(t, "31d7a40c-200b-57e2-a86b-d9afe8874a24", InstanceID("default", "web", "10.0.0.7:8080"), "it never changes")
	require.Equal(t, InstanceID("default", "web", "web.example:80"), InstanceID("default", "web", "WEB.example:80"))
	require.Equal(t, InstanceID("default", "web", "[2001:db8::1]:80"), InstanceID("default", "web", "[2001:DB8:0:0:0:0:0:1]:80"))
}
