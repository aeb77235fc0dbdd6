package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/streams"
)

// messages is a page of messages.
func (b *bundle) messages(query string) (m admin.MessageList) {
	b.t.Helper()
	a := b.get("/v1/streams/events/messages" + query)
	require.Equal(b.t, 200, a.StatusCode, string(a.body))
	require.NoError(b.t, json.Unmarshal(a.body, &m))
	return m
}

func TestMessagesOfAStream(t *testing.T) {
	b := setup(t)
	names := streams.Names{}
	before := b.messages("").Last
	for i := range 60 {
		_, err := b.js.Publish(t.Context(), names.Event("gadget", fmt.Sprintf("default.m%d", i%2), "seen"), fmt.Appendf(nil, `{"i":%d,"big":9007199254740993}`, i))
		require.NoError(t, err)
	}
	long := strings.Repeat("ä", 10000)
	_, err := b.js.Publish(t.Context(), names.Event("gadget", "default.long", "seen"), []byte(long+"\xff"))
	require.NoError(t, err)

	newest := b.messages("")
	require.Equal(t, "EVENTS", newest.Stream)
	require.Len(t, newest.Items, 20)
	require.Empty(t, newest.NextCursor)
	last := newest.Items[19]
	require.Equal(t, newest.Last, last.Seq)
	require.True(t, last.Cut)
	require.Equal(t, 20001, last.Size)
	require.Less(t, len(last.Body), 17<<10)
	require.JSONEq(t, `{"i":59,"big":9007199254740993}`, string(newest.Items[18].Body))
	require.Contains(t, string(newest.Items[18].Body), "9007199254740993", "as it is stored")

	page := b.messages(fmt.Sprintf("?subject=%s&after=%d&limit=25", names.Event("gadget", "default.m1", "*"), before))
	require.Len(t, page.Items, 25)
	require.NotEmpty(t, page.NextCursor)
	rest := b.messages(fmt.Sprintf("?subject=%s&after=%s&limit=25", names.Event("gadget", "default.m1", "*"), page.NextCursor))
	require.Len(t, rest.Items, 5)
	require.Empty(t, rest.NextCursor)
	for _, m := range append(page.Items, rest.Items...) {
		require.Equal(t, names.Event("gadget", "default.m1", "seen"), m.Subject)
	}
	require.Empty(t, b.messages("?subject=no.such.subject").Items)

	for _, wrong := range []string{"?subject=a..b", "?subject=a.>.b", "?subject=a%20b", "?subject=a.b*", "?limit=51", "?limit=0", "?after=x"} {
		b.get("/v1/streams/events/messages"+wrong).problem(t, 422, "validation")
	}
	b.get("/v1/streams/kv-services/messages").problem(t, 404, "not-found")
	for _, token := range []string{"operate-token", "tenant-token"} {
		b.token = token
		b.get("/v1/streams/events/messages").problem(t, 403, "forbidden")
	}
}

// A stream of work that is done has holes: the newest messages are those that are left, however far back.
func TestNewestOfAWorkQueue(t *testing.T) {
	b := setup(t)
	names := streams.Names{}
	cons, err := b.js.CreateConsumer(t.Context(), streams.EffectStream, jetstream.ConsumerConfig{Durable: "toy", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	const all = 400
	for range all {
		_, err := b.js.Publish(t.Context(), names.Effect("gadget", "paint", "default.a"), []byte("{}"))
		require.NoError(t, err)
	}
	batch, err := cons.Fetch(all, jetstream.FetchMaxWait(time.Minute))
	require.NoError(t, err)
	var left []uint64
	done := func(seq uint64) bool { return seq > 330 || seq%7 != 0 && seq != 1 }
	for m := range batch.Messages() {
		meta, err := m.Metadata()
		require.NoError(t, err)
		if seq := meta.Sequence.Stream; !done(seq) {
			left = append(left, seq)
			continue
		}
		require.NoError(t, m.DoubleAck(t.Context()))
	}
	require.NoError(t, batch.Error())
	require.Len(t, left, 48)
	for _, limit := range []int{1, 20, 47, 48, 50} {
		a := b.get(fmt.Sprintf("/v1/streams/effects/messages?limit=%d", limit))
		require.Equal(t, 200, a.StatusCode, string(a.body))
		var page admin.MessageList
		require.NoError(t, json.Unmarshal(a.body, &page))
		var got []uint64
		for _, m := range page.Items {
			got = append(got, m.Seq)
		}
		require.Equal(t, left[max(0, len(left)-limit):], got, "limit %d", limit)
		require.Empty(t, page.NextCursor)
	}
}
