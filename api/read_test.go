package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func TestEntity(t *testing.T) {
	b := setup(t)
	b.ready("a")
	t.Run("ShowsEverythingButTheBookkeeping", func(t *testing.T) {
		a := b.get("/v1/gadgets/a")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		e := a.json(t)
		for _, hidden := range []string{"mark", "lastEvent", "commands", "outbox", "schema"} {
			require.NotContains(t, e, hidden)
		}
		require.NotContains(t, string(a.body), "secret-id")
		require.Equal(t, "READY", e["state"])
		require.Equal(t, map[string]any{"team": "web"}, e["labels"])
		require.Equal(t, []any{"resize", "touch", "shrink", "delete", "purge"}, e["allowedCommands"])
		require.Equal(t, map[string]any{"shrink": "cannot shrink gadget default.a while it is READY: needs a size of 10"}, e["forbiddenCommands"])
		require.Equal(t, a.Header.Get("ETag"), fmt.Sprintf("%q", fmt.Sprint(e["revision"])), "a client may take the one for the other")
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"), "what is forbidden is for this reader, now")
	})
	t.Run("Conditions", func(t *testing.T) {
		tag := b.get("/v1/gadgets/a").Header.Get("ETag")
		for _, match := range []string{tag, "*", "W/" + tag, `"4", ` + tag, `"4" , W/` + tag} {
			a := b.get("/v1/gadgets/a", "If-None-Match", match)
			require.Equal(t, 304, a.StatusCode, match)
			require.Equal(t, tag, a.Header.Get("ETag"))
			require.Empty(t, a.body)
		}
		require.Equal(t, 200, b.get("/v1/gadgets/a", "If-None-Match", `"4"`).StatusCode)
		require.Equal(t, 200, b.get("/v1/gadgets/a", "If-None-Match", `garbage`).StatusCode)
	})
	t.Run("Head", func(t *testing.T) {
		a := b.do("HEAD", "/v1/gadgets/a", "")
		require.Equal(t, 200, a.StatusCode)
		require.Empty(t, a.body)
	})
	t.Run("MinRevision", func(t *testing.T) {
		rev := b.post("/v1/gadgets/a/resize", `{"size":9}`).json(t)["revision"]
		require.Equal(t, 200, b.get(fmt.Sprintf("/v1/gadgets/a?minRevision=%v", rev)).StatusCode)
		list := b.get(fmt.Sprintf("/v1/gadgets?minRevision=%v", rev)).json(t)
		require.GreaterOrEqual(t, list["revision"], rev)
		b.get("/v1/gadgets/a?minRevision=999999").problem(t, 422, machines.CodeValidation)
		b.get("/v1/gadgets/a?minRevision=-1").problem(t, 422, machines.CodeValidation)
	})
	t.Run("NotThere", func(t *testing.T) {
		p := b.get("/v1/gadgets/nobody").problem(t, 404, machines.CodeNotFound)
		require.Equal(t, []any{"create"}, p["allowedCommands"])
		b.get("/v1/gadgets/a?namespace=other").problem(t, 404, machines.CodeNotFound)
	})
	t.Run("ParkedSaysSo", func(t *testing.T) {
		var last uint64
		for key, value := range map[string]string{
			"bad": `{"schema":`, "new": `{"schema":99,"machine":"gadget","namespace":"default","id":"new","state":"READY"}`,
			"odd": `{"schema":1,"machine":"gadget","namespace":"default","id":"odd","state":"DANCING"}`, "swapped": `{"schema":1,"machine":"gadget","namespace":"default","id":"a","state":"READY"}`,
		} {
			stored, err := b.js.Publish(t.Context(), "$KV.gadgets.default."+key, []byte(value))
			require.NoError(t, err)
			last = max(last, stored.Sequence)
			a := b.get("/v1/gadgets/" + key)
			a.problem(t, 409, machines.CodeParked)
			require.NotContains(t, string(a.body), "DANCING")
			require.NotContains(t, string(a.body), "unexpected end")
		}
		list := b.get(fmt.Sprintf("/v1/gadgets?parked=true&minRevision=%d", last))
		require.Contains(t, string(list.body), `"id":"bad"`)
		require.NotContains(t, string(list.body), `"id":"a"`)
		require.Contains(t, b.log.String(), "DANCING")
	})
	t.Run("View", func(t *testing.T) {
		b.get("/v1/gadgets/nobody/sizes").problem(t, 404, machines.CodeNotFound)
		b.get("/v1/gadgets/a/sizes").problem(t, 404, machines.CodeNotFound)
		for value, want := range map[string]string{`[1,2]`: `{"items":[1,2]}`, `{"sizes":[1]}`: `{"sizes":[1]}`, `7`: `{"value":7}`} {
			_, err := b.js.Publish(t.Context(), "$KV.gadgets_sizes.default.a", folded(t, value))
			require.NoError(t, err)
			a := b.get("/v1/gadgets/a/sizes")
			require.JSONEq(t, want, string(a.body))
			require.Equal(t, 304, b.get("/v1/gadgets/a/sizes", "If-None-Match", a.Header.Get("ETag")).StatusCode)
		}
	})
}

// folded is a view as it is stored.
func folded(t *testing.T, value string) []byte {
	raw, err := json.Marshal(machines.Folded{Value: json.RawMessage(value)})
	require.NoError(t, err)
	return raw
}

func TestList(t *testing.T) {
	b := setup(t)
	var rev any
	for i := range 7 {
		wait := map[bool]string{true: "1ms", false: "10s"}[i == 6] // the last one is held
		a := b.post(fmt.Sprintf("/v1/gadgets/g%d/create?settle=%s", i, wait), fmt.Sprintf(`{"spec":{"name":"x","hold":%t},"labels":{"team":"%s","n":"%d"}}`, i == 6, map[bool]string{true: "web", false: "db"}[i < 3], i))
		rev = a.json(t)["revision"]
		if i == 6 {
			require.Equal(t, 202, a.StatusCode)
		}
	}
	b.post("/v1/gadgets/far/create?namespace=other&settle=10s", `{"spec":{"name":"x"}}`)
	b.post("/v1/gadgets/g0/parts/p1/mount", `{}`)
	rev2 := b.post("/v1/gadgets/g1/parts/p2/mount", `{}`).json(t)["revision"]
	ids := func(query string) []string {
		a := b.get("/v1/gadgets?" + query)
		require.Equal(t, 200, a.StatusCode, string(a.body))
		found := []string{}
		for _, it := range a.json(t)["items"].([]any) {
			found = append(found, it.(map[string]any)["id"].(string))
		}
		return found
	}
	t.Run("Filters", func(t *testing.T) {
		min := fmt.Sprintf("&minRevision=%v", rev)
		require.Equal(t, []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6"}, ids(min[1:]))
		require.Equal(t, []string{"g6"}, ids("state=CREATING"+min))
		require.Len(t, ids("state=CREATING,READY"), 7)
		require.Len(t, ids("state=CREATING&state=READY"), 7)
		require.Equal(t, []string{"g0", "g1", "g2"}, ids("label=team%3Dweb"))
		require.Equal(t, []string{"g1"}, ids("label=team%3Dweb&label=n%3D1"))
		require.Equal(t, []string{"g3", "g4", "g5", "g6"}, ids("label="+url.QueryEscape("team!=web")))
		require.Equal(t, []string{"g1", "g4"}, ids("label="+url.QueryEscape("n in (1,4)")))
		require.Len(t, ids("label=team"), 7)
		require.Empty(t, ids("label=nope"))
		require.Empty(t, ids("updatedBefore=2020-01-01T00:00:00Z"))
		require.Len(t, ids("updatedAfter=2020-01-01T00:00:00Z&createdAfter=2020-01-01T00:00:00Z"), 7)
		require.Equal(t, []string{"far"}, ids("namespace=other"))
		require.Len(t, ids("namespace=*"), 8)
	})
	t.Run("Pages", func(t *testing.T) {
		var all []string
		path, n := "/v1/gadgets?limit=3&state=READY", 0
		for cursor := "start"; cursor != ""; n++ {
			at := path
			if cursor != "start" {
				at += "&cursor=" + cursor
			}
			page := b.get(at).json(t)
			for _, it := range page["items"].([]any) {
				all = append(all, it.(map[string]any)["id"].(string))
			}
			cursor = page["nextCursor"].(string)
			if cursor != "" {
				b.get("/v1/gadgets?limit=3&state=CREATING&cursor="+cursor).problem(t, 400, "malformed")
				b.get("/v1/gadgets?namespace=other&state=READY&cursor="+cursor).problem(t, 400, "malformed")
			}
		}
		require.Equal(t, []string{"g0", "g1", "g2", "g3", "g4", "g5"}, all)
		require.Equal(t, 2, n)
		b.get("/v1/gadgets?cursor=!!").problem(t, 400, "malformed")
		require.Len(t, ids("limit=100000"), 7)
		b.get("/v1/gadgets?limit=0").problem(t, 422, machines.CodeValidation)
	})
	t.Run("OrderBy", func(t *testing.T) {
		require.Equal(t, []string{"g6", "g5", "g4", "g3", "g2", "g1", "g0"}, ids("orderBy=createdAt%20desc"))
		require.Equal(t, []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6"}, ids("orderBy=createdAt"))
		require.Equal(t, []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6"}, ids("orderBy=id"))
		var all []string
		for cursor := ""; ; {
			page := b.get("/v1/gadgets?limit=2&orderBy=since+desc&state=READY&cursor=" + cursor).json(t)
			for _, it := range page["items"].([]any) {
				all = append(all, it.(map[string]any)["id"].(string))
			}
			if cursor = page["nextCursor"].(string); cursor == "" {
				break
			}
			b.get("/v1/gadgets?limit=2&orderBy=since&state=READY&cursor="+cursor).problem(t, 400, "malformed")
		}
		require.Equal(t, []string{"g5", "g4", "g3", "g2", "g1", "g0"}, all)
		for _, q := range []string{"id%20desc", "name", "createdAt%20down", "createdAt,since", "createdAt%20desc%20desc", "%20"} {
			b.get("/v1/gadgets?orderBy="+q).problem(t, 422, machines.CodeValidation)
		}
	})
	t.Run("WrongFilters", func(t *testing.T) {
		for _, q := range []string{"state=DANCING", "label=a%20b%3Dc%20d", "label=" + url.QueryEscape("x in 1"), "updatedAfter=yesterday", "limit=-1", "limit=x", "include=all", "parent=x", "namespace=a..b"} {
			b.get("/v1/gadgets?"+q).problem(t, 422, machines.CodeValidation)
		}
	})
	t.Run("IncludeData", func(t *testing.T) {
		items := b.get("/v1/gadgets?include=data&limit=2").json(t)["items"].([]any)
		require.Len(t, items, 2)
		require.Equal(t, "x", items[0].(map[string]any)["entity"].(map[string]any)["data"].(map[string]any)["spec"].(map[string]any)["name"])
	})
	t.Run("Children", func(t *testing.T) {
		require.Len(t, b.get(fmt.Sprintf("/v1/gadgets/g0/parts?minRevision=%v", rev2)).json(t)["items"], 1)
		require.Len(t, b.get("/v1/parts").json(t)["items"], 2)
		require.Len(t, b.get("/v1/parts?parent=g1").json(t)["items"], 1)
		b.get("/v1/parts?parent=*").problem(t, 422, machines.CodeValidation)
	})
	t.Run("Counts", func(t *testing.T) {
		c := b.get("/v1/machines/gadget/counts").json(t)
		require.EqualValues(t, 8, c["total"])
		require.Equal(t, map[string]any{"CREATING": 1.0, "READY": 7.0, "BROKEN": 0.0, "DELETED": 0.0}, c["states"])
		c = b.get("/v1/machines/gadget/counts", "Authorization", "Bearer tenant-token").json(t)
		require.EqualValues(t, 0, c["total"])
		all := b.get("/v1/counts").json(t)["items"].([]any)
		require.Len(t, all, len(b.get("/v1/machines").json(t)["items"].([]any)))
		require.Contains(t, all, b.get("/v1/machines/gadget/counts").json(t))
		require.Contains(t, b.get("/v1/counts", "Authorization", "Bearer tenant-token").json(t)["items"], c)
		b.get("/v1/machines/nope/counts").problem(t, 404, machines.CodeNotFound)
	})
}

func TestStays(t *testing.T) {
	b := setup(t)
	b.ready("a")
	require.Eventually(t, func() bool { // the index follows
		states := b.get("/v1/machines/gadget/stays").json(t)["states"].([]any)
		if len(states) == 0 {
			return false
		}
		first := states[0].(map[string]any)
		return first["state"] == "CREATING" && first["count"] == 1.0 && first["p95Seconds"].(float64) >= first["p50Seconds"].(float64)
	}, time.Minute, 10*time.Millisecond)
	b.get("/v1/machines/nothing/stays").problem(t, 404, machines.CodeNotFound)
}

func TestEvents(t *testing.T) {
	b := setup(t)
	b.ready("a")
	for i := range 5 {
		require.Equal(t, 200, b.post("/v1/gadgets/a/resize", fmt.Sprintf(`{"size":%d}`, i)).StatusCode)
	}
	b.ready("ab") // another one whose id begins alike
	t.Run("InOrder", func(t *testing.T) {
		items := b.get("/v1/gadgets/a/events").json(t)["items"].([]any)
		require.Len(t, items, 6)
		first := items[0].(map[string]any)
		require.Equal(t, "gadget.created", first["type"])
		require.Equal(t, "", first["from"])
		require.Equal(t, "CREATING", first["to"])
		require.Equal(t, "state", first["class"])
	})
	t.Run("Pages", func(t *testing.T) {
		page := b.get("/v1/gadgets/a/events?limit=4").json(t)
		require.Len(t, page["items"], 4)
		rest := b.get(fmt.Sprintf("/v1/gadgets/a/events?limit=4&after=%v", page["nextCursor"])).json(t)
		require.Len(t, rest["items"], 2)
		require.Equal(t, "", rest["nextCursor"])
	})
	t.Run("Types", func(t *testing.T) {
		require.Len(t, b.get("/v1/gadgets/a/events?type=gadget.created").json(t)["items"], 1)
		require.Len(t, b.get("/v1/gadgets/a/events?type=gadget.created,gadget.resized").json(t)["items"], 6)
		require.Empty(t, b.get("/v1/gadgets/a/events?type=gadget.deleted").json(t)["items"])
		b.get("/v1/gadgets/a/events?type=nope").problem(t, 422, machines.CodeValidation)
	})
	t.Run("LeavesNoConsumer", func(t *testing.T) {
		s, err := b.js.Stream(t.Context(), "EVENTS")
		require.NoError(t, err)
		require.Zero(t, s.CachedInfo().State.Consumers)
	})
	t.Run("NotThere", func(t *testing.T) {
		b.get("/v1/gadgets/nobody/events").problem(t, 404, machines.CodeNotFound)
		require.Empty(t, b.get("/v1/gadgets/a/events?after=99999999").json(t)["items"])
	})
	t.Run("Backwards", func(t *testing.T) {
		forwards := b.get("/v1/gadgets/a/events").json(t)["items"].([]any)
		page := b.get("/v1/gadgets/a/events?before=0&limit=4").json(t)
		rest := b.get(fmt.Sprintf("/v1/gadgets/a/events?before=%v&limit=4", page["nextCursor"])).json(t)
		require.Len(t, page["items"], 4)
		require.Equal(t, "", rest["nextCursor"])
		backwards := append(page["items"].([]any), rest["items"].([]any)...)
		slices.Reverse(backwards)
		require.Equal(t, forwards, backwards)
		seq := func(i int) uint64 { return uint64(forwards[i].(map[string]any)["seq"].(float64)) }
		require.Equal(t, forwards[:1], b.get(fmt.Sprintf("/v1/gadgets/a/events?type=gadget.created&before=%d", seq(4))).json(t)["items"])

		s, err := b.js.Stream(t.Context(), "EVENTS")
		require.NoError(t, err)
		for _, i := range []int{2, 4} { // as events of other classes, which are not kept for as long
			require.NoError(t, s.DeleteMsg(t.Context(), seq(i)))
		}
		left := b.get("/v1/gadgets/a/events?before=0").json(t)["items"].([]any)
		require.Equal(t, []any{forwards[5], forwards[3], forwards[1], forwards[0]}, left)
		require.Empty(t, b.get(fmt.Sprintf("/v1/gadgets/a/events?before=%d", seq(0))).json(t)["items"])
		b.get("/v1/gadgets/a/events?before=5&after=1").problem(t, 422, machines.CodeValidation)
		b.get("/v1/gadgets/nobody/events?before=0").problem(t, 404, machines.CodeNotFound)
	})
	t.Run("WhoSawAValueFindsItsEvents", func(t *testing.T) {
		bucket, err := b.js.KeyValue(t.Context(), "gadgets")
		require.NoError(t, err)
		stored, err := bucket.Get(t.Context(), "default.a")
		require.NoError(t, err)
		e, err := gadget.Decode(stored.Value())
		require.NoError(t, err)
		e.Version++
		e.Outbox = []machines.Message{{Kind: machines.KindEvent, Name: "gadget.resized", Version: e.Version, At: time.Now()}}
		raw, err := e.AppendJSON(nil)
		require.NoError(t, err)
		_, err = bucket.Put(t.Context(), "default.a", raw)
		require.NoError(t, err)
		published := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() {
			_, err := b.js.Publish(context.Background(), (streams.Names{}).Event("gadget", "default.a", "resized"), fmt.Appendf(nil, `{"version":%d}`, e.Version), jetstream.WithMsgID(e.Outbox[0].ID("gadget", "default.a")))
			published <- err
		})
		items := b.get("/v1/gadgets/a/events").json(t)["items"].([]any)
		require.NoError(t, <-published)
		require.EqualValues(t, e.Version, items[len(items)-1].(map[string]any)["version"])
	})
}

func TestMachines(t *testing.T) {
	b := setup(t)
	require.Len(t, b.get("/v1/machines").json(t)["items"], 2)
	require.Equal(t, "gadgets", b.get("/v1/machines/gadget").json(t)["plural"])
	b.get("/v1/machines/nope").problem(t, 404, machines.CodeNotFound)
	for _, c := range []struct{ query, accept, want string }{
		{"", "", "stateDiagram-v2"}, {"", "*/*", "stateDiagram-v2"}, {"?format=dot", "", "digraph"}, {"", "text/vnd.graphviz", "digraph"}, {"", "application/json", `"plural"`}, {"?format=json", "text/plain", `"plural"`},
	} {
		a := b.get("/v1/machines/gadget/diagram"+c.query, "Accept", c.accept)
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Contains(t, string(a.body), c.want)
	}
	b.get("/v1/machines/gadget/diagram", "Accept", "image/png").problem(t, 406, "not-acceptable")
	b.get("/v1/machines/gadget/diagram?format=png").problem(t, 422, machines.CodeValidation)
}

func TestWhatIsNotThere(t *testing.T) {
	b := setup(t)
	b.get("/nope").problem(t, 404, machines.CodeNotFound)
	b.get("/v1//gadgets").problem(t, 404, machines.CodeNotFound)
	b.get("/v1/gadgets/").problem(t, 404, machines.CodeNotFound)
	b.get("/v1/gadgets/a/../b").problem(t, 404, machines.CodeNotFound)
	for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "BREW"} {
		a := b.do(method, "/v1/gadgets/a", "")
		a.problem(t, 405, "method-not-allowed")
		require.Equal(t, "GET, HEAD", a.Header.Get("Allow"))
	}
	a := b.get("/v1/gadgets/a/create")
	a.problem(t, 405, "method-not-allowed")
	require.Equal(t, "POST", a.Header.Get("Allow"))
	for path, begins := range map[string]string{"/v1/gadgets": "create is POST /v1/gadgets/{id}/create", "/v1/parts": "mount is POST /v1/gadgets/{gadget}/parts/{id}/mount", "/v1/gadgets/a/parts": "mount is POST /v1/gadgets/{gadget}/parts/{id}/mount"} {
		require.Equal(t, "the path is not offered for this method; "+begins, b.do("POST", path, "{}").problem(t, 405, "method-not-allowed")["detail"])
	}
	require.Equal(t, "the path is not offered for this method", b.do("PUT", "/v1/gadgets/gadgets", "{}").problem(t, 405, "method-not-allowed")["detail"])
	require.Equal(t, "/docs", b.get("/").Header.Get("Location"))
	require.Equal(t, "abc-1", b.get("/nope", "X-Request-Id", "abc-1").Header.Get("X-Request-Id"))
	require.NotEqual(t, "a b", b.get("/nope", "X-Request-Id", "a b").Header.Get("X-Request-Id"))
}

func TestDeadLetters(t *testing.T) {
	b := setup(t)
	b.letters.all = append(b.letters.all, letter(1, "default.a", `{"x":1}`), letter(2, "acme.b", `not json`), letter(3, "default.c", ``))
	require.Len(t, b.get("/v1/dead-letters").json(t)["items"], 3)
	page := b.get("/v1/dead-letters?limit=2").json(t)
	require.Equal(t, "2", page["nextCursor"])
	require.Len(t, b.get("/v1/dead-letters?after=2").json(t)["items"], 1)
	require.Empty(t, b.get("/v1/dead-letters?machine=part").json(t)["items"])
	require.Equal(t, "not json", b.get("/v1/dead-letters/2").json(t)["body"])
	b.get("/v1/dead-letters/9").problem(t, 404, machines.CodeNotFound)
	b.get("/v1/dead-letters/x").problem(t, 422, machines.CodeValidation)
	b.get("/v1/dead-letters/1", "Authorization", "Bearer tenant-token").problem(t, 404, machines.CodeNotFound)
	require.Len(t, b.get("/v1/dead-letters", "Authorization", "Bearer tenant-token").json(t)["items"], 1)
	b.post("/v1/dead-letters/1/redrive", "", "Authorization", "Bearer operate-token").problem(t, 403, "forbidden")
	b.post("/v1/dead-letters/1/redrive", "", "Authorization", "Bearer tenant-token").problem(t, 404, machines.CodeNotFound)
	require.Equal(t, []any{1.0}, b.post("/v1/dead-letters/1/redrive", "").json(t)["redriven"])
	for _, body := range []string{``, `{}`, `{"seqs":[1],"all":true}`, `{"seqs":[1],"machine":"gadget"}`, `{"seqs":[-1]}`, `{"seqs":"all"}`} {
		b.post("/v1/dead-letters/redrive", body).problem(t, 422, machines.CodeValidation)
	}
	many := b.post("/v1/dead-letters/redrive", `{"seqs":[2,9]}`).json(t)
	require.Equal(t, []any{2.0}, many["redriven"])
	require.Len(t, many["failed"], 1)
	require.Equal(t, []any{2.0}, b.post("/v1/dead-letters/redrive", `{"all":true}`, "Authorization", "Bearer tenant-token").json(t)["redriven"])
	require.Equal(t, []any{1.0, 2.0, 3.0}, b.post("/v1/dead-letters/redrive", `{"all":true,"machine":"gadget"}`).json(t)["redriven"])
	require.Equal(t, []any{1.0}, b.post("/v1/dead-letters/1/redrive", `{"body":null}`).json(t)["redriven"], "it is no edit")
	b.post("/v1/dead-letters/1/redrive", `{"x":2}`).problem(t, 422, machines.CodeValidation)
	b.post("/v1/dead-letters/drop", `{"seqs":[1]}`).problem(t, 422, machines.CodeValidation) // without a reason
	b.post("/v1/dead-letters/drop", `{"seqs":[1],"reason":"old"}`, "Authorization", "Bearer operate-token").problem(t, 403, "forbidden")
	for _, reason := range []string{" ", `a\u001b[2Jb`} {
		b.post("/v1/dead-letters/drop", `{"seqs":[1],"reason":"`+reason+`"}`).problem(t, 422, machines.CodeValidation)
	}
	foreign := b.post("/v1/dead-letters/drop", `{"seqs":[1],"reason":"old"}`, "Authorization", "Bearer tenant-token").json(t)
	require.Empty(t, foreign["dropped"], "of another namespace")
	dropped := b.post("/v1/dead-letters/drop", `{"seqs":[1,9],"reason":"nobody needs it"}`).json(t)
	require.Equal(t, []any{1.0}, dropped["dropped"])
	require.Len(t, dropped["failed"], 1)
	require.Contains(t, b.log.String(), "nobody needs it")
	b.get("/v1/dead-letters/1").problem(t, 404, machines.CodeNotFound)
	b.letters.err = fmt.Errorf("dsn postgres://user:pw@host")
	a := b.get("/v1/dead-letters")
	a.problem(t, 500, "internal")
	require.NotContains(t, string(a.body), "postgres")
	require.True(t, strings.Contains(b.log.String(), "postgres"))
	require.True(t, json.Valid(a.body))
}
