package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With the real engine behind the door: what a 202 leads to ends with the answer, and a batch with its counts.
func TestOperationsOfAServer(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), nil)
	w.must("service", "wait", "hello", "--for", "state=READY")
	ask := func(method, path, body, prefer string) (*http.Response, map[string]any) {
		req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Prefer", prefer)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		var v map[string]any
		require.NoError(t, json.Unmarshal(text, &v), string(text))
		return resp, v
	}
	for _, c := range []struct{ path, body, code string }{
		{"/v1/services/hello/label", `{"labels":{"a":"b"}}`, ""},
		{"/v1/services/hello/create", `{"spec":{"image":"hello"}}`, "already-exists"},
	} {
		resp, v := ask("POST", c.path, c.body, "respond-async")
		require.Equal(t, http.StatusAccepted, resp.StatusCode, v)
		_, op := ask("GET", resp.Header.Get("Location"), "", "wait=20")
		require.Equal(t, true, op["done"], op)
		if c.code == "" {
			require.Equal(t, "READY", op["response"].(map[string]any)["state"])
			continue
		}
		require.Equal(t, c.code, op["error"].(map[string]any)["code"])
	}
	resp, v := ask("POST", "/v1/batches", `{"machine":"service","filter":{"labels":["a=b"]},"command":"refresh"}`, "")
	require.Equal(t, http.StatusAccepted, resp.StatusCode, v)
	_, op := ask("GET", resp.Header.Get("Location"), "", "wait=20")
	require.Equal(t, true, op["done"], op)
	require.EqualValues(t, 1, op["response"].(map[string]any)["matched"])
	require.EqualValues(t, 1, op["response"].(map[string]any)["applied"])
}
