package reader

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

func TestTheReaderRefusesAsDecodeDoes(t *testing.T) {
	t.Parallel()
	var r Reader
	for _, text := range []string{
		``, `[]`, `{}`, `null`, `{"machine":"service","namespace":"default","parent":"web","id":"a","state":"active.healthy"}`,
		`{"machine":"instance","namespace":"default","id":"a","state":"active.healthy"}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":""}`,
		` {"machine":"instance" , "namespace":"default","parent":"web","id":"a\u0062","state":"draining","data":{}} `,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"NodeAddress":"x:1","payload":null,"weight":1}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"payload":{"a":1}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"payload":{},"tags":["é","b"],"check":{"headers":{"a":"b"}}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","version":1.5}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","st\u0061te":"active.healthy","data":{"weight":1}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"weight":1},"mark":tru}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"weight":1e2,"zone":"z\n"},"commands":[{"id":"}]\""}]}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":{"at":"2026-01-02T03:04:05Z","status":200,"latencyMillis":0.5}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":{"at":"2026-01-02T03:04:05Z","weight":7}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":{"at":"yesterday"}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":{"status":"no"}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":"x"}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"draining","data":{"evidence":null}}`,
		`{"schema":1,"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z"}`,
		` {"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z"} `,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","Data":{"zone":"z"}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":null}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":{"protected":1}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":{"protected":"x"}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":{"protected":{}}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":{"protected":true,"protected":null}}`,
		`{"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":3,"generation":1,"since":"2026-01-02T03:04:05Z","data":{"protected":false}}`,
	} {
		want, err := instance.Decode([]byte(text))
		got, err2 := r.Decode("default.web.a", []byte(text))
		require.Equal(t, err == nil, err2 == nil, text)
		require.Equal(t, want, got, text)
	}
}

func TestRecordsShareWhatTheyHaveInCommon(t *testing.T) { // not beside others: it counts allocations
	var r Reader
	value := []byte(`{"schema":1,"machine":"instance","namespace":"default","parent":"web","id":"a","state":"active.healthy","version":4,"generation":2,
"since":"2026-01-02T03:04:05Z","data":{"nodeAddress":"10.0.0.1:80","payload":{"region":"eu","version":"1.0"},"zone":"z1","weight":100,"check":{"type":"ttl","ttl":"10s"},"healthCheckRetries":0},"mark":17}`)
	_, err := r.Decode("default.web.a", value)
	require.NoError(t, err)
	n := testing.AllocsPerRun(100, func() {
		rec, err := r.Decode("default.web.a", value)
		if err != nil || rec.Data.Payload["region"] != "eu" {
			t.Fatal(rec, err)
		}
	})
	require.LessOrEqual(t, n, 2.0, "the record and its address")
}

func BenchmarkDecode(b *testing.B) {
	value := []byte(`{"schema":1,"machine":"instance","namespace":"default","id":"32fd4720-3cb7-578a-bbe8-6ca255743cdd","parent":"svc-0","state":"active.healthy","version":3,"generation":1,"since":"2026-11-21T17:16:23.309574125Z","createdAt":"2026-11-21T17:16:20.956143254Z","updatedAt":"2026-11-21T17:16:23.309574125Z","data":{"nodeAddress":"10.0.0.0:8080","payload":{"region":"eu","version":"1.0"},"zone":"z0","weight":100,"check":{"type":"ttl","ttl":"30m","grace":"10m"},"healthCheckRetries":0,"evidence":{"observer":"node-wgus1x8vyi0xydmhvhe8ay","kind":"ttl","consecutive":1,"at":"2026-11-21T17:16:23.307Z","generation":1},"registeredAt":"2026-11-21T17:16:20.956143254Z"},"mark":301,"markedAt":"2026-11-21T17:16:23.309574125Z","lastEvent":2,"commands":[{"id":"WGUS1x8VyI0xydMhVheNst","seq":1,"result":"applied","state":"registering.pending_persistence","version":1,"hash":"3fa4i66ao1iem"},{"id":"WGUS1x8VyI0xydMhVheNz7","seq":3,"result":"applied","state":"active.unknown","version":2,"hash":"d1ku5kil37j5"}],"outbox":[{"kind":"event","name":"instance.healthy","version":3,"n":0,"at":"2026-11-21T17:16:23.309574125Z","body":{"from":"active.unknown","to":"active.healthy","version":3,"generation":1,"command":"health-check-passed"}}]}`)
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = instance.Decode(value)
		}
	})
	b.Run("reader", func(b *testing.B) {
		b.ReportAllocs()
		var r Reader
		for b.Loop() {
			_, _ = r.Decode("default.svc-0.32fd4720-3cb7-578a-bbe8-6ca255743cdd", value)
		}
	})
}
