package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

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
