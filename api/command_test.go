package api_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/operations"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

func TestCommands(t *testing.T) {
	b := setup(t)
	create := `{"spec":{"name":"lamp","size":3}}`

	t.Run("AppliedAnswersWithETag", func(t *testing.T) {
		a := b.post("/v1/gadgets/a/create", create, "Idempotency-Key", `"first"`, "Instar-Reason", "because", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		r := a.json(t)
		require.Equal(t, "applied", r["outcome"])
		require.Equal(t, "CREATING", r["state"])
		require.Equal(t, "first", r["commandId"])
		require.EqualValues(t, 1, r["version"])
		require.EqualValues(t, 1, r["generation"])
		require.Empty(t, a.Header.Get("Idempotent-Replayed"))
		require.NotEmpty(t, a.Header.Get("ETag"))
	})
	t.Run("LeadsToThePage", func(t *testing.T) {
		link := func(to string) string { return "<" + to + `>; rel="alternate"; type="text/html"` }
		require.Equal(t, link("/ui/entities/gadget/seen"), b.post("/v1/gadgets/seen/create", create).Header.Get("Link"))
		require.Equal(t, link("/ui/entities/gadget/seen?namespace=other"), b.post("/v1/gadgets/seen/create?namespace=other", create).Header.Get("Link"))
		require.Equal(t, link("/ui/entities/gadget/seen"), b.get("/v1/gadgets/seen").Header.Get("Link"))
		refused := b.post("/v1/gadgets/seen/create", create)
		refused.problem(t, 409, machines.CodeExists)
		require.Equal(t, "/ui/entities/gadget/seen", refused.json(t)["page"])
		nobody := b.get("/v1/gadgets/nobody-here")
		nobody.problem(t, 404, machines.CodeNotFound)
		require.NotContains(t, nobody.json(t), "page")
		require.Empty(t, nobody.Header.Get("Link"), "nobody has no page")
	})
	t.Run("TellsTheEngineWhoAndWhy", func(t *testing.T) {
		b.post("/v1/gadgets/who/create", create, "Instar-Reason", "because", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Nats-Rollup", "all")
		require.Empty(t, b.engine.header("Nats-Rollup"))
		story := b.get("/v1/gadgets/who/events")
		require.Equal(t, 200, story.StatusCode, "%s %s", story.body, b.log)
		events := story.json(t)["items"].([]any)
		require.Equal(t, "boss", events[0].(map[string]any)["actor"])
		require.Equal(t, "because", events[0].(map[string]any)["reason"])
	})
	t.Run("SameKeyIsAnsweredAsThen", func(t *testing.T) {
		a := b.post("/v1/gadgets/a/create", create, "Idempotency-Key", "first")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
		a = b.post("/v1/gadgets/a/create", `{"spec":{"name":"other"}}`, "Idempotency-Key", "first")
		a.problem(t, 422, machines.CodeKeyReused)
		require.Empty(t, a.Header.Get("Idempotent-Replayed"))
	})
	t.Run("SettleWaitsForTheFinalState", func(t *testing.T) {
		b.ready("settled")
	})
	t.Run("NotSettledInTimeIsAccepted", func(t *testing.T) {
		a := b.post("/v1/gadgets/held/create?settle=50ms", `{"spec":{"name":"lamp","hold":true}}`)
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "/v1/operations/gadget.default.held."+a.json(t)["commandId"].(string), a.Header.Get("Location"))
		require.Equal(t, "CREATING", a.json(t)["state"])
	})
	t.Run("RespondAsync", func(t *testing.T) {
		a := b.post("/v1/gadgets/async/create?namespace=other", create, "Prefer", "handling=lenient, respond-async")
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "/v1/operations/gadget.other.async."+a.json(t)["commandId"].(string), a.Header.Get("Location"))
		require.Equal(t, "respond-async", a.Header.Get("Preference-Applied"))
		require.Equal(t, "stored", a.json(t)["outcome"])
		require.NotZero(t, a.json(t)["sequence"])
	})
	t.Run("RespondAsyncAgain", func(t *testing.T) {
		b.engine.remember("gadget", "default.long-ago", "k9", "create", create, machines.Answer{Outcome: machines.Applied, State: "READY", Version: 2, Revision: 9})
		for range 2 {
			a := b.post("/v1/gadgets/long-ago/create", create, "Prefer", "respond-async", "Idempotency-Key", "k9")
			require.Equal(t, 200, a.StatusCode, string(a.body))
			require.Equal(t, "true", a.Header.Get("Idempotent-Replayed"))
			require.EqualValues(t, 9, a.json(t)["revision"])
		}
	})
	t.Run("PreferWait", func(t *testing.T) {
		a := b.post("/v1/gadgets/w1/create", create, "Prefer", `respond-async, Wait="60" ; x, wait=0`)
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Equal(t, "READY", a.json(t)["state"])
		require.Equal(t, "wait=30", a.Header.Get("Preference-Applied"))

		began := time.Now()
		a = b.post("/v1/gadgets/w2/create", `{"spec":{"name":"lamp","hold":true}}`, "Prefer", "respond-async, wait=1")
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "respond-async, wait=1", a.Header.Get("Preference-Applied"))
		require.Greater(t, time.Since(began), 900*time.Millisecond)

		a = b.post("/v1/gadgets/w3/create", create, "Prefer", "wait=0")
		require.Equal(t, 202, a.StatusCode, string(a.body))
		require.Equal(t, "stored", a.json(t)["outcome"])
		require.Equal(t, "wait=0", a.Header.Get("Preference-Applied"))

		a = b.post("/v1/gadgets/w4/create?settle=10s", create, "Prefer", "wait=0")
		require.Equal(t, "READY", a.json(t)["state"], string(a.body))
		require.Empty(t, a.Header.Get("Preference-Applied"))

		a = b.post("/v1/gadgets/w5/create", create, "Prefer", "wait=soon")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Empty(t, a.Header.Get("Preference-Applied"))
	})
	t.Run("TellsTheEngineHowLongTheSenderWaits", func(t *testing.T) {
		for _, c := range []struct{ prefer, wait, told string }{{"", "", ""}, {"wait=1", "", "1s"}, {"", "90", "1m30s"}, {"wait=1", "2h", "2h0m0s"}} {
			b.post("/v1/gadgets/tells"+c.told+"/create", `{"spec":{"name":"lamp","hold":true}}`, "Instar-Wait", c.wait, "Prefer", c.prefer)
			require.Equal(t, c.told, b.engine.header(streams.HeaderWait))
		}
		b.post("/v1/gadgets/tells/create", create, "Instar-Wait", "-1s").problem(t, 422, machines.CodeValidation)
	})
	t.Run("RefusalsSayWhatIsAllowed", func(t *testing.T) {
		b.ready("r")
		p := b.post("/v1/gadgets/r/create", create).problem(t, 409, machines.CodeExists)
		require.Equal(t, "READY", p["currentState"])
		p = b.post("/v1/gadgets/r/shrink", "").problem(t, 409, machines.CodeGuard)
		require.Contains(t, p["detail"], "needs a size of 10")
		require.Contains(t, p["allowedCommands"], "resize")
		b.post("/v1/gadgets/nobody/resize", `{"size":1}`).problem(t, 404, machines.CodeNotFound)
		require.Equal(t, 200, b.post("/v1/gadgets/r/delete", "").StatusCode)
		p = b.post("/v1/gadgets/r/resize", `{"size":1}`).problem(t, 409, machines.CodeTransition)
		require.Equal(t, "DELETED", p["currentState"])
		require.Equal(t, []any{"create"}, p["allowedCommands"])
	})
	t.Run("NothingToDo", func(t *testing.T) {
		b.ready("u")
		a := b.post("/v1/gadgets/u/touch", "null")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		require.Equal(t, "unchanged", a.json(t)["outcome"])
	})
	t.Run("IfMatch", func(t *testing.T) {
		tag := b.get("/v1/gadgets/" + b.made("m")).Header.Get("ETag")
		b.post("/v1/gadgets/m/resize", `{"size":1}`, "If-Match", `"1"`).problem(t, 412, machines.CodePrecondition)
		b.post("/v1/gadgets/m/resize", `{"size":1}`, "If-Match", `W/`+tag).problem(t, 412, machines.CodePrecondition)
		b.post("/v1/gadgets/none/resize", `{"size":1}`, "If-Match", `*`).problem(t, 412, machines.CodePrecondition)
		b.post("/v1/gadgets/m/resize", `{"size":1}`, "If-Match", `5`).problem(t, 422, machines.CodeValidation)
		for _, match := range []string{"TAG", "*", `"1", TAG`, `W/"1" ,, TAG`} {
			tag = b.get("/v1/gadgets/m").Header.Get("ETag")
			a := b.post("/v1/gadgets/m/resize", `{"size":2}`, "If-Match", strings.ReplaceAll(match, "TAG", tag))
			require.Equal(t, 200, a.StatusCode, "%s: %s", match, a.body)
		}
	})
	t.Run("IfMatchUnderAKey", func(t *testing.T) { // the key comes first: a repetition is answered as then, whatever the entity is at by now
		tag := b.get("/v1/gadgets/" + b.made("k")).Header.Get("ETag")
		for i, match := range []string{"TAG", `"1", TAG`, "*"} {
			tag = b.get("/v1/gadgets/k").Header.Get("ETag")
			match, key := strings.ReplaceAll(match, "TAG", tag), "match-"+strconv.Itoa(i)
			first := b.post("/v1/gadgets/k/resize", `{"size":3}`, "If-Match", match, "Idempotency-Key", key)
			require.Equal(t, 200, first.StatusCode, "%s: %s", match, first.body)
			again := b.post("/v1/gadgets/k/resize", `{"size":3}`, "If-Match", match, "Idempotency-Key", key)
			require.Equal(t, 200, again.StatusCode, "%s: %s", match, again.body)
			require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
			require.Equal(t, string(first.body), string(again.body))
		}
		now := b.get("/v1/gadgets/k").Header.Get("ETag")
		p := b.post("/v1/gadgets/k/resize", `{"size":3}`, "If-Match", tag, "Idempotency-Key", "late")
		p.problem(t, 412, machines.CodePrecondition)
		require.Equal(t, now, p.Header.Get("ETag"), "what it is at")
		b.post("/v1/gadgets/k/resize", `{"size":3}`, "If-Match", now, "Idempotency-Key", "late").problem(t, 422, machines.CodeKeyReused)
		b.post("/v1/gadgets/gone/resize", `{"size":3}`, "If-Match", "*", "Idempotency-Key", "never").problem(t, 412, machines.CodePrecondition)
		b.made("gone")
		b.post("/v1/gadgets/gone/resize", `{"size":3}`, "If-Match", "*", "Idempotency-Key", "never").problem(t, 412, machines.CodePrecondition)
	})
	t.Run("Children", func(t *testing.T) {
		a := b.post("/v1/gadgets/a/parts/wheel/mount", `{"weight":3}`)
		require.Equal(t, 200, a.StatusCode, string(a.body))
		e := b.get("/v1/gadgets/a/parts/wheel").json(t)
		require.Equal(t, "a", e["parent"])
		require.Equal(t, "/v1/gadgets/a/parts/wheel/events", e["links"].(map[string]any)["events"])
	})
}

func TestIfMatchIsRequired(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.RequireIfMatch = []string{"gadget"} })
	b.ready("x")
	b.post("/v1/gadgets/x/resize", `{"size":2}`).problem(t, 428, "precondition-required")
	b.post("/v1/gadgets/x/resize?dryRun", `{"size":2}`).problem(t, 428, "precondition-required")
	a := b.post("/v1/gadgets/x/resize", `{"size":2}`, "If-Match", b.get("/v1/gadgets/x").Header.Get("ETag"))
	require.Equal(t, 200, a.StatusCode, string(a.body))
	require.Equal(t, 200, b.post("/v1/gadgets/x/parts/p/mount", `{}`).StatusCode)
	require.Equal(t, 200, b.post("/v1/gadgets/x/parts/p/remove", "").StatusCode, "another machine")
}

// What keeps the stream from taking a command is told apart from what leaves it unknown whether it did.
func TestStoringProblems(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{10167: "429 rate-limited", 10002: "503 queue-full", 10023: "503 queue-full", 10028: "503 queue-full", 10047: "503 queue-full", 10054: "413 payload-too-large"} {
		p := api.Storing(&publish.RefusedError{Code: code})
		require.NotNil(t, p, code)
		require.Equal(t, want, strconv.Itoa(p.Status)+" "+p.Code)
	}
	require.Nil(t, api.Storing(&publish.RefusedError{Code: 10077}), "what the store says in words decides nothing")
}

// made makes a gadget and returns its id.
func (b *bundle) made(id string) string {
	b.ready(id)
	return id
}

func TestBadInputStoresNothing(t *testing.T) {
	b := setup(t)
	b.ready("x")
	before := b.stored()
	good := `{"spec":{"name":"lamp"}}`
	cases := []struct {
		name, path, body string
		headers          []string
		status           int
		code             string
	}{
		{"IDWithDot", "/v1/gadgets/a.b/create", good, nil, 422, "validation"},
		{"IDWithEncodedDot", "/v1/gadgets/a%2Eb/create", good, nil, 422, "validation"},
		{"IDWithSpace", "/v1/gadgets/a%20b/create", good, nil, 422, "validation"},
		{"IDStar", "/v1/gadgets/*/create", good, nil, 422, "validation"},
		{"IDGreater", "/v1/gadgets/%3E/create", good, nil, 422, "validation"},
		{"IDEmpty", "/v1/gadgets//create", good, nil, 404, "not-found"},
		{"IDDot", "/v1/gadgets/./create", good, nil, 404, "not-found"},
		{"IDDots", "/v1/gadgets/%2e%2e/create", good, nil, 404, "not-found"},
		{"IDLong", "/v1/gadgets/" + strings.Repeat("a", 129) + "/create", good, nil, 422, "validation"},
		{"IDUnicode", "/v1/gadgets/%C3%A9/create", good, nil, 422, "validation"},
		{"IDNul", "/v1/gadgets/a%00/create", good, nil, 422, "validation"},
		{"IDUpper", "/v1/gadgets/A/create", good, nil, 422, "validation"},
		{"IDHyphen", "/v1/gadgets/-a/create", good, nil, 422, "validation"},
		{"IDSlash", "/v1/gadgets/a%2Fb/create", good, nil, 422, "validation"},
		{"Command", "/v1/gadgets/x/explode", good, nil, 404, "not-found"},
		{"Report", "/v1/gadgets/x/made", "{}", nil, 404, "not-found"},
		{"Machine", "/v1/things/x/create", good, nil, 404, "not-found"},
		{"NamespaceBad", "/v1/gadgets/x/create?namespace=a.b", good, nil, 422, "validation"},
		{"NamespaceStar", "/v1/gadgets/x/create?namespace=*", good, nil, 422, "validation"},
		{"NamespaceTwice", "/v1/gadgets/x/create?namespace=a&namespace=b", good, nil, 422, "validation"},
		{"NamespaceForeign", "/v1/gadgets/x/create?namespace=default", good, []string{"Authorization", "Bearer tenant-token"}, 404, "not-found"},
		{"UnknownQuery", "/v1/gadgets/x/create?nope=1", good, nil, 422, "validation"},
		{"QueryBroken", "/v1/gadgets/x/create?namespace=%zz", good, nil, 400, "malformed"},
		{"NotJSON", "/v1/gadgets/x/create", `{"spec":`, nil, 400, "malformed"},
		{"NotUTF8", "/v1/gadgets/x/create", "{\"spec\":{\"name\":\"\xff\"},}", nil, 400, "malformed"},
		{"TwoValues", "/v1/gadgets/x/create", good + good, nil, 400, "malformed"},
		{"Deep", "/v1/gadgets/x/create", `{"spec":{"name":"a","free":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + `}}`, nil, 400, "malformed"},
		{"OpenBrackets", "/v1/gadgets/x/create", strings.Repeat("[", 256<<10-1), nil, 400, "malformed"},
		{"TooLarge", "/v1/gadgets/x/create", `{"spec":{"name":"` + strings.Repeat("a", 1<<20) + `"}}`, nil, 413, "payload-too-large"},
		{"TooLargeWithItsHeaders", "/v1/gadgets/x/create", `{"spec":{"name":"a","free":"` + strings.Repeat("a", 1<<20-40) + `"}}`, nil, 413, "payload-too-large"},
		{"UnknownField", "/v1/gadgets/x/create", `{"spec":{"name":"a","password":"s3cret"}}`, nil, 422, "validation"},
		{"NameInAnotherCase", "/v1/gadgets/x/create", `{"Spec":{"name":"a"}}`, nil, 422, "validation"},
		{"NameWithinInAnotherCase", "/v1/gadgets/x/create", `{"spec":{"Name":"a"}}`, nil, 422, "validation"},
		{"NameInBothCases", "/v1/gadgets/x/create", `{"spec":{"name":"a"},"SPEC":{"name":"b"}}`, nil, 422, "validation"},
		{"StateIsNotSettable", "/v1/gadgets/x/create", `{"spec":{"name":"a"},"state":"READY"}`, nil, 422, "validation"},
		{"WrongType", "/v1/gadgets/x/create", `{"spec":{"name":1}}`, nil, 422, "validation"},
		{"OutOfRange", "/v1/gadgets/x/create", `{"spec":{"name":"a","size":101}}`, nil, 422, "validation"},
		{"HugeNumber", "/v1/gadgets/x/create", `{"spec":{"name":"a","size":1e999}}`, nil, 422, "validation"},
		{"Missing", "/v1/gadgets/x/create", `{}`, nil, 422, "validation"},
		{"NoBody", "/v1/gadgets/x/create", ``, nil, 422, "validation"},
		{"NullBody", "/v1/gadgets/x/create", `null`, nil, 422, "validation"},
		{"ListBody", "/v1/gadgets/x/create", `[]`, nil, 422, "validation"},
		{"BodyWhereNone", "/v1/gadgets/x/touch", `{"a":1}`, nil, 422, "validation"},
		{"MediaType", "/v1/gadgets/x/create", good, []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type"},
		{"Form", "/v1/gadgets/x/create", good, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported-media-type"},
		{"Charset", "/v1/gadgets/x/create", good, []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported-media-type"},
		{"KeyEmpty", "/v1/gadgets/x/create", good, []string{"Idempotency-Key", `""`}, 422, "validation"},
		{"KeyLong", "/v1/gadgets/x/create", good, []string{"Idempotency-Key", strings.Repeat("k", 129)}, 422, "validation"},
		{"KeySpace", "/v1/gadgets/x/create", good, []string{"Idempotency-Key", `"a b"`}, 422, "validation"},
		{"KeyUnicode", "/v1/gadgets/x/create", good, []string{"Idempotency-Key", "é"}, 422, "validation"},
		{"ReasonControl", "/v1/gadgets/x/create", good, []string{"Instar-Reason", "a\tb"}, 422, "validation"},
		{"ReasonLong", "/v1/gadgets/x/create", good, []string{"Instar-Reason", strings.Repeat("r", 1025)}, 422, "validation"},
		{"ReasonLatin1", "/v1/gadgets/x/create", good, []string{"Instar-Reason", "f\xfcr"}, 422, "validation"},
		{"Settle", "/v1/gadgets/x/create?settle=soon", good, nil, 422, "validation"},
		{"SettleNegative", "/v1/gadgets/x/create?settle=-1s", good, nil, 422, "validation"},
		{"IfMatch", "/v1/gadgets/x/create", good, []string{"If-Match", "x"}, 422, "validation"},
		{"TokenMissing", "/v1/gadgets/x/create", good, []string{"Authorization", ""}, 401, "unauthorized"},
		{"TokenWrong", "/v1/gadgets/x/create", good, []string{"Authorization", "Bearer nope"}, 401, "unauthorized"},
		{"TokenBasic", "/v1/gadgets/x/create", good, []string{"Authorization", "Basic YTpi"}, 401, "unauthorized"},
		{"RoleRead", "/v1/gadgets/x/create", good, []string{"Authorization", "Bearer read-token"}, 403, "forbidden"},
		{"RoleOperate", "/v1/gadgets/x/purge", "", []string{"Authorization", "Bearer operate-token"}, 403, "forbidden"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := b.post(c.path, c.body, c.headers...)
			a.problem(t, c.status, c.code)
			require.NotContains(t, string(a.body), "s3cret")
			if c.status == 401 {
				require.Contains(t, a.Header.Get("WWW-Authenticate"), "Bearer")
			}
		})
	}
	require.Equal(t, before, b.stored(), "something was stored")
	require.Empty(t, b.log.String(), "bad input is no error of the program")
}

func TestReasonsAreCountedInCharacters(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.server.Micro(t.Context()))
	reason := strings.Repeat("为", rest.MaxReason)
	a := b.post("/v1/gadgets/x/create", `{"spec":{"name":"a"}}`, "Instar-Reason", reason)
	require.Equal(t, 200, a.StatusCode, "%s", a.body)
	require.Empty(t, b.ask("instar.api.cmd.gadget.default.x.touch", "", "Instar-Reason", reason).Header.Get(micro.ErrorCodeHeader))
}

// What is counted otherwise where an operation is read would be taken, and never found.
func TestIDsAreCountedInBytes(t *testing.T) {
	b := setup(t)
	require.NoError(t, b.server.Micro(t.Context()))
	b.ready("x")
	for _, name := range []string{"Nats-Msg-Id", "Instar-Actor"} {
		require.Equal(t, "422", b.ask("instar.api.cmd.gadget.default.x.touch", "", name, strings.Repeat("я", rest.MaxKey/2+1)).Header.Get(micro.ErrorCodeHeader), name)
	}
	id := strings.Repeat("я", rest.MaxKey/2)
	require.Empty(t, b.ask("instar.api.cmd.gadget.default.x.touch", "", "Nats-Msg-Id", id).Header.Get(micro.ErrorCodeHeader))
	require.Equal(t, 200, b.get("/v1/operations/"+operations.Name("gadget", "default.x", id)).StatusCode)
}

func TestHeaderWithLineBreaks(t *testing.T) {
	b := setup(t)
	before := b.stored()
	// The client of net/http refuses to send these: the handler is called as a careless server might.
	for _, value := range []string{"a\r\nNats-Rollup: all", "a\nb", "\x1b[31m", "a\x00"} {
		for _, name := range []string{"Instar-Reason", "Idempotency-Key"} {
			r, w := newCall("POST", "/v1/gadgets/x/create", `{"spec":{"name":"a"}}`)
			r.Header[name] = []string{value}
			b.server.Handler().ServeHTTP(w, r)
			require.Equal(t, 422, w.Code, "%s %q: %s", name, value, w.Body)
		}
	}
	r, w := newCall("GET", "/v1/gadgets/x", "")
	r.Header["X-Request-Id"] = []string{"a\r\nb"}
	b.server.Handler().ServeHTTP(w, r)
	require.NotContains(t, w.Header().Get("X-Request-Id"), "\n")
	require.Equal(t, before, b.stored())
}

func TestUnansweredIsAccepted(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.AnswerWithin = 100 * time.Millisecond })
	b.engine.mu.Lock()
	b.engine.mute = func(string) bool { return true }
	b.engine.mu.Unlock()
	a := b.post("/v1/gadgets/slow/create", `{"spec":{"name":"a"}}`, "Idempotency-Key", "k1")
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	require.Equal(t, "/v1/operations/gadget.default.slow.k1", a.Header.Get("Location"))
	require.Equal(t, "stored", a.json(t)["outcome"])
	require.Equal(t, "k1", a.json(t)["commandId"])

	a = b.post("/v1/gadgets/slow/create", `{"spec":{"name":"a"}}`) // nothing is kept of it, so no operation is promised
	require.Equal(t, http.StatusAccepted, a.StatusCode, string(a.body))
	require.Empty(t, a.Header.Get("Location"))
	require.NotContains(t, a.json(t), "operation")
	require.NotZero(t, a.json(t)["sequence"])
	require.NotEmpty(t, a.json(t)["commandId"])
}

func TestStorageGone(t *testing.T) {
	b := setup(t)
	b.ready("x")
	b.app.Close()
	p := b.post("/v1/gadgets/x/touch", "").problem(t, 503, "unavailable")
	require.NotContains(t, p["detail"], "appender")
	a := b.post("/v1/gadgets/x/touch", "")
	require.NotEmpty(t, a.Header.Get("Retry-After"))
	require.Contains(t, b.log.String(), a.Header.Get("X-Request-Id"))
}
