package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// One trace leads from the HTTP request through the engine's step to the effect that it starts.
func TestTraceFromRequestToEffect(t *testing.T) { // not parallel: the exporter is configured by the environment
	var mu sync.Mutex
	names := map[string][]string{} // by trace
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			unzipped, err := gzip.NewReader(r.Body)
			if err != nil {
				return
			}
			body = unzipped
		}
		raw, err := io.ReadAll(body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(raw, &req) != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					id := hex.EncodeToString(s.TraceId)
					names[id] = append(names[id], s.Name)
				}
			}
		}
	}))
	defer sink.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	w := startWhole(t, t.TempDir(), nil)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	req, err := http.NewRequest(http.MethodPost, w.url+"/v1/services/traced/create", strings.NewReader(`{"spec":{"image":"hello"}}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(names[trace], "\n")
		return strings.Contains(all, "/v1/services/{id}/create") && strings.Contains(all, "step service.create") && strings.Contains(all, "effect service.apply")
	}, 20*time.Second, 50*time.Millisecond)
}
