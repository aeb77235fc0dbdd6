package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

func TestSizesOfTenantsAreListedAndSet(t *testing.T) {
	t.Parallel()
	var asked []string
	small := `{"name":"small","regions":{"default":["t1","t2"],"eu":["t3"]},"set":true,"revision":7}`
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("If-Match")+" "+string(body)))
		if r.Method == http.MethodGet {
			answer(w, 200, `{"items":[`+small+`,{"name":"none","regions":{},"set":false,"revision":1}]}`)
			return
		}
		answer(w, 200, small)
	}))
	defer web.Close()
	for _, tc := range []struct {
		args, out, asked string
		code             int
	}{
		{args: "ls", out: "small  eu       t3       true   7", asked: "GET /v1/tenant-sizes"},
		{args: "ls -o name", out: "small\nnone", asked: "GET /v1/tenant-sizes"},
		{args: "set small default=t1,t2 eu=t3 --if-match 6", out: "small  default  t1,t2", asked: `PUT /v1/tenant-sizes/small "6" {"regions":{"default":["t1","t2"],"eu":["t3"]}}`},
		{args: "set small", out: "small", asked: `PUT /v1/tenant-sizes/small  {}`},
		{args: "set small --reset -o json", out: `"revision": 7`, asked: `PUT /v1/tenant-sizes/small  {"reset":true}`},
		{args: "set", code: command.ExitUsage},
		{args: "set small eu", code: command.ExitUsage},
		{args: "set small eu=t1 --reset", code: command.ExitUsage},
	} {
		asked = nil
		code, out, said := exitOf1(strings.Fields("tenant-size " + tc.args + " --server " + web.URL)...)
		require.Equal(t, tc.code, code, said)
		require.Contains(t, out, tc.out)
		require.Equal(t, tc.asked, strings.Join(asked, "\n"))
	}
}

func TestWhatMovesHaveLeftIsListed(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "GET /v1/tenant-leftovers", r.Method+" "+r.URL.Path)
		answer(w, 200, `{"items":[{"kind":"database","name":"tenant_acme","on":"server t1","session":"default.acme.move","reason":"drop it"}]}`)
	}))
	defer web.Close()
	for args, want := range map[string]string{
		"": "database  tenant_acme  server t1  -       default.acme.move  drop it", "-o name": "tenant_acme", "-o json": `"reason": "drop it"`,
	} {
		code, out, said := exitOf1(strings.Fields("tenant-leftovers " + args + " --server " + web.URL)...)
		require.Zero(t, code, said)
		require.Contains(t, out, want)
	}
}
