package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// What is done with a letter is known when that is gone: who, what, why and with which.
func TestWhatWasDoneWithDeadLetters(t *testing.T) {
	b := setup(t)
	b.ready("a")
	command := letter(3, "default.a", `{"size":"large"}`)
	command.Subject = streams.Names{}.Stored("gadget", "default.a", "resize")
	strange := letter(4, "a.b.c.d", "")
	strange.Machine = "*"
	b.letters.all = []admin.DeadLetter{letter(1, "default.a", `{"secret":"hush"}`), letter(2, "acme.b", ""), command, strange}

	require.Equal(t, 200, b.post("/v1/dead-letters/redrive", `{"seqs":[1],"reason":"the provider is back"}`).StatusCode)
	require.Equal(t, 200, b.post("/v1/dead-letters/3/redrive", `{"body":{"size":9}}`, "Instar-Reason", "typo").StatusCode)
	require.Equal(t, 200, b.post("/v1/dead-letters/drop", `{"seqs":[2,4,99],"reason":"nobody needs them"}`).StatusCode)
	b.post("/v1/dead-letters/redrive", `{"seqs":[1],"reason":"a\u001b[2Jb"}`).problem(t, 422, machines.CodeValidation)

	var told []string
	got := b.get("/v1/dead-letters/settled")
	for _, item := range got.json(t)["items"].([]any) {
		one := item.(map[string]any)
		told = append(told, fmt.Sprintf("%v %v %v of %v %v: %v", one["actor"], one["action"], one["seq"], one["machine"], one["key"], one["why"]))
		at, err := time.Parse(time.RFC3339, one["time"].(string))
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
		require.Equal(t, strange.Reason, one["reason"])
	}
	require.Equal(t, []string{
		"boss dropped 4 of unknown unknown.unknown: nobody needs them", "boss dropped 2 of gadget acme.b: nobody needs them",
		"boss edited 3 of gadget default.a: typo", "boss redriven 1 of gadget default.a: the provider is back",
	}, told)
	require.NotContains(t, string(got.body), "hush")

	page := b.get("/v1/dead-letters/settled?limit=3").json(t)
	require.Len(t, page["items"], 3)
	page = b.get("/v1/dead-letters/settled?cursor=" + page["nextCursor"].(string)).json(t)
	require.Len(t, page["items"], 1)
	require.Empty(t, page["nextCursor"])
	require.Len(t, b.get("/v1/dead-letters/settled?machine=gadget").json(t)["items"], 3)
	b.get("/v1/dead-letters/settled?machine=*.x").problem(t, 422, machines.CodeValidation)
	require.Len(t, b.get("/v1/dead-letters/settled", "Authorization", "Bearer tenant-token").json(t)["items"], 1)
	require.Empty(t, b.get("/v1/dead-letters/settled", "Authorization", "Bearer unknown-token").json(t)["items"])
}
