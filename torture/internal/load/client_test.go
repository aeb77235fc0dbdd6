package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRevisionOfARead(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"opaque"`)
		_, err := io.WriteString(w, `{"state":"FAILED","version":3,"revision":42,"labels":{"v":"a"}}`)
		require.NoError(t, err)
	}))
	defer s.Close()
	v, err := (&Client{Bases: []string{s.URL}}).Get(t.Context(), "web")
	require.NoError(t, err)
	require.Equal(t, View{State: "FAILED", Version: 3, Revision: 42, Labels: map[string]string{"v": "a"}}, v)
}
