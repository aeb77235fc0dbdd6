package api_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
)

func TestBackup(t *testing.T) {
	begun, end := make(chan struct{}), make(chan error)
	b := setup(t, func(o *api.Options) {
		o.Backup = func(_ context.Context, w io.Writer) error {
			begun <- struct{}{}
			err := <-end
			if err == nil || err.Error() != "at once" {
				_, _ = w.Write(make([]byte, 1<<20))
			}
			return err
		}
	})
	get := func() (*http.Response, []byte, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.web.URL+"/v1/backup", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer admin-token")
		resp, err := b.web.Client().Do(req)
		if err != nil {
			return nil, nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp, body, err
	}
	b.get("/v1/backup", "Authorization", "Bearer operate-token").problem(t, 403, "forbidden")
	b.get("/v1/backup", "Authorization", "Bearer tenant-token").problem(t, 403, "forbidden")

	first := make(chan error)
	go func() {
		resp, body, err := get()
		if err == nil && (resp.StatusCode != 200 || len(body) != 1<<20 || resp.Header.Get("Content-Type") != "application/zstd") {
			err = errors.New(resp.Status)
		}
		first <- err
	}()
	<-begun
	b.get("/v1/backup").problem(t, 503, "unavailable") // one at a time
	end <- nil
	require.NoError(t, <-first)

	for why, seen := range map[string]bool{"at once": true, "in the midst": false} {
		go func() { <-begun; end <- errors.New(why) }()
		resp, _, err := get()
		if seen {
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
		} else {
			require.Error(t, err, "what is not complete must not look complete")
		}
	}
}
