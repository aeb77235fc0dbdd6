package api_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/auth"
)

// fill puts names into the path of an operation.
func fill(path string) string {
	return strings.NewReplacer("{id}", "x", "{gadget}", "x", "{machine}", "gadget", "{seq}", "1", "{$}", "").Replace(path)
}

func TestAuthMatrix(t *testing.T) {
	b := setup(t)
	b.letters.all = append(b.letters.all, letter(1, "default.a", `{}`))
	b.token = ""
	rank := map[auth.Role]int{"": 0, auth.Read: 1, auth.Operate: 2, auth.Admin: 3}
	held := map[string]int{"": 0, "read-token": 1, "operate-token": 2, "admin-token": 3}
	for _, op := range b.server.Operations() {
		t.Run(op.Method+" "+op.Path, func(t *testing.T) {
			for token, has := range held {
				headers := []string{}
				if token != "" {
					headers = append(headers, "Authorization", "Bearer "+token)
				}
				// HEAD asks for the headers of a watch only; it is checked as GET is.
				method := op.Method
				if strings.HasSuffix(op.Path, "/watch") {
					method = "HEAD"
				}
				a := b.do(method, fill(op.Path), "", headers...)
				switch need := rank[op.Role]; {
				case need == 0 || has >= need:
					require.NotContains(t, []int{401, 403}, a.StatusCode, "%s: %s", token, a.body)
				case has == 0:
					require.Equal(t, 401, a.StatusCode)
				default:
					require.Equal(t, 403, a.StatusCode)
				}
			}
		})
	}
}

func TestOpen(t *testing.T) {
	b := setup(t, func(o *api.Options) { o.Open, o.Tokens = true, nil })
	b.token = ""
	b.ready("x")
	require.Equal(t, 200, b.post("/v1/gadgets/x/purge", "").StatusCode)
	require.Equal(t, "anonymous", b.get("/v1/gadgets/x/events").json(t)["items"].([]any)[0].(map[string]any)["actor"])
	require.Equal(t, 200, b.get("/metrics").StatusCode)
	b.get("/v1/gadgets", "Authorization", "Bearer wrong").problem(t, 401, "unauthorized")
	b.post("/v1/gadgets/x/purge", "", "Sec-Fetch-Site", "cross-site").problem(t, 403, "forbidden")
	b.post("/v1/gadgets/x/purge", "", "Origin", "http://evil.example").problem(t, 403, "forbidden")
	require.Equal(t, 200, b.get("/v1/gadgets", "Sec-Fetch-Site", "cross-site").StatusCode, "reads are kept from other pages by the browser")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := auth.Token{Name: "a", Hash: auth.HashToken("x"), Role: auth.Read, Namespace: "*"}
	for name, change := range map[string]func(*auth.Token){
		"Hash": func(t *auth.Token) { t.Hash = "x" }, "ShortHash": func(t *auth.Token) { t.Hash = "sha256:00" }, "Role": func(t *auth.Token) { t.Role = "root" },
		"NoRole": func(t *auth.Token) { t.Role = "" }, "Namespace": func(t *auth.Token) { t.Namespace = "a.b" }, "Name": func(t *auth.Token) { t.Name = "a\nb" },
	} {
		t.Run(name, func(t *testing.T) {
			token := good
			change(&token)
			require.Error(t, api.CheckToken(token))
		})
	}
	require.NoError(t, api.CheckToken(good))
	_, err := api.New(api.Options{})
	require.ErrorContains(t, err, "machines")
}

// A request costs no more where there are many tokens.
func TestManyTokens(t *testing.T) {
	t.Parallel()
	took := func(n int) (least time.Duration) {
		all := make([]auth.Token, n)
		for i := range all {
			all[i] = auth.Token{Name: fmt.Sprint("t", i), Hash: auth.HashToken(fmt.Sprint("token-", i)), Role: auth.Read, Namespace: "*"}
		}
		known, err := auth.NewKeyring(all, false)
		require.NoError(t, err)
		r := httptest.NewRequest("GET", "/", nil)
		least = time.Hour
		for range 20 {
			begun := time.Now()
			for i := range 10 {
				r.Header.Set("Authorization", fmt.Sprint("Bearer token-", i))
				_, p := known.Identify(r)
				require.Nil(t, p)
			}
			r.Header.Set("Authorization", "Bearer token-x")
			_, p := known.Identify(r)
			require.NotNil(t, p)
			least = min(least, time.Since(begun))
		}
		return least
	}
	require.Less(t, took(20000), 20*took(10))
}
