package auth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/auth"
)

// What another host of the same domain can set counts for nothing over TLS, and elsewhere where it stands beside the one of this server.
func TestCookiesOfOtherHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sent   string
		secure bool
		header string // of the request
		want   string // empty is none
	}{
		{sent: "it=mine", want: "mine"},
		{sent: "it=mine; it=theirs"},
		{sent: "it=theirs; it=mine", secure: true},
		{sent: "it=theirs", secure: true},
		{sent: "it=theirs", header: "X-Forwarded-Proto"},
		{sent: "it=theirs; __Host-it=mine", want: "mine"},
		{sent: "it=theirs; __Host-it=mine", secure: true, want: "mine"},
		{sent: "__Host-it=a; __Host-it=b", secure: true},
		{sent: "another=x"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Cookie", c.sent)
		if c.header != "" {
			r.Header.Set(c.header, "https")
		}
		got, err := auth.Cookie(r, "it", c.secure)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, c.want == "", err != nil, "%+v: %v", c, err)
	}
	for _, line := range [][2]string{{"Origin", "https://instar.example"}, {"X-Forwarded-Proto", "https"}, {"Origin", "http://instar.example"}} {
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		r.Header.Set(line[0], line[1])
		auth.SetCookie(w, r, &http.Cookie{Name: "it", Value: "mine", Path: "/here"})
		c := w.Result().Cookies()[0]
		require.True(t, c.HttpOnly)
		if line[1] == "http://instar.example" {
			require.Equal(t, []any{"it", "/here", false}, []any{c.Name, c.Path, c.Secure})
			continue
		}
		require.Equal(t, []any{"__Host-it", "/", true}, []any{c.Name, c.Path, c.Secure}, line)
	}
}
