package relay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

func hasCE(m *nats.Msg) bool {
	for name := range m.Header {
		if strings.HasPrefix(name, "ce-") {
			return true
		}
	}
	return false
}

// A row whose payload is a CloudEvent goes into the stream as it is, and no header says something else of it.
func TestARowInStructuredModePassesThrough(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		s.begin(mode)
		id := uuid.Must(uuid.NewV7())
		event := fmt.Sprintf(`{"specversion": "1.0", "id": %q, "source": "/shop", "type": "order.paid", "data": {"n": 1}}`, id)
		s.exec(`select outbox_append_bytes('order', 'o-1', 'order.paid', convert_to($1, 'UTF8'), 'application/cloudevents+json; charset=utf-8', '{"tenant": "t1"}')`, event)
		s.add("o-1", 2)
		s.eventually(2)
		list := s.events()
		require.Equal(t, event, string(list[0].Data))
		require.False(t, hasCE(list[0]), list[0].Header)
		require.Equal(t, "application/cloudevents+json; charset=utf-8", list[0].Header.Get("content-type"))
		require.Equal(t, id.String(), list[0].Header.Get(nats.MsgIdHdr))
		require.Equal(t, "t1", list[0].Header.Get("tenant"))
		require.Equal(t, "order.paid", list[1].Header.Get("ce-type"))
		require.Equal(t, []string{"application/json"}, list[1].Header["ce-datacontenttype"])
	})
}

// A relay can publish every event in structured mode; what is too large for that stays in binary mode.
func TestPublishingInStructuredMode(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	large := strings.Repeat("\x01", 900_000)
	s.exec(`select outbox_append('order', 'o-1', 'order.paid', '{"n": "<1>"}', '{"traceparent": "00-a-b-01"}'),
		outbox_append_bytes('order', 'o-1', 'order.paid', '\x00ff', 'image/png; name="a"'),
		outbox_append_bytes('order', 'o-1', 'order.paid', 'no json', 'application/json'),
		outbox_append_bytes('order', 'o-1', 'order.paid', '', 'text/plain'),
		outbox_append_bytes('order', 'o-1', 'order.paid', $1, 'text/plain')`, []byte(large))
	s.run(s.relay(outbox.Log, func(r *Relay) { r.Config.Structured = true }))
	s.eventually(5)
	list := s.events()
	for i, want := range []string{
		`"datacontenttype":"application/json","traceparent":"00-a-b-01","data":{"n": "<1>"}}`,
		`"datacontenttype":"image/png; name=\"a\"","data_base64":"AP8="}`,
		`"datacontenttype":"application/json","data_base64":"bm8ganNvbg=="}`,
		`"datacontenttype":"text/plain"}`,
	} {
		require.Equal(t, "application/cloudevents+json", list[i].Header.Get("content-type"))
		require.False(t, hasCE(list[i]))
		require.True(t, strings.HasSuffix(string(list[i].Data), want), string(list[i].Data))
		var e struct{ ID, Source, Type, Subject, Specversion, Time string }
		require.NoError(t, json.Unmarshal(list[i].Data, &e))
		require.NotEmpty(t, e.Time)
		e.Time = ""
		require.Equal(t, struct{ ID, Source, Type, Subject, Specversion, Time string }{list[i].Header.Get(nats.MsgIdHdr), "/outbox/shop", "order.paid", "order/o-1", "1.0", ""}, e)
	}
	require.Equal(t, large, string(list[4].Data))
	require.Equal(t, "1.0", list[4].Header.Get("ce-specversion"))
	require.Equal(t, "text/plain", list[4].Header.Get("content-type"))
}
