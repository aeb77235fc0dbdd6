package api_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// roundTripper checks every answer against the document.
type roundTripper struct {
	b      *bundle
	next   http.RoundTripper
	router routers.Router
}

// readers of documents, by what these describe: writing and reading one is slow, and most tests have the same.
var readers sync.Map

func (b *bundle) validating(next http.RoundTripper, ms []*machines.Machine) http.RoundTripper {
	key := fmt.Sprint(b.server.Operations())
	for _, m := range ms {
		key += fmt.Sprintf(" %p", m)
	}
	read, _ := readers.LoadOrStore(key, sync.OnceValues(func() (routers.Router, error) {
		doc, err := openapi3.NewLoader().LoadFromData(b.server.OpenAPI())
		if err != nil {
			return nil, err
		}
		return legacy.NewRouter(doc)
	}))
	router, err := read.(func() (routers.Router, error))()
	require.NoError(b.t, err)
	return &roundTripper{b, next, router}
}

func (v *roundTripper) CloseIdleConnections() {
	if c, ok := v.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (v *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := v.next.RoundTrip(r)
	if err != nil || strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res, err
	}
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(raw))
	route, params, err := v.router.FindRoute(r)
	if err != nil || r.Method == http.MethodHead || strings.HasSuffix(r.URL.Path, "/") {
		return res, nil // no operation: the documents of the page, and what does not exist
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 res.StatusCode, Header: res.Header, Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	in.SetBodyBytes(raw)
	ct := res.Header.Get("Content-Type")
	if strings.Contains(ct, "json") {
		if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
			v.b.t.Errorf("%s %s: the answer is not as the document says: %v\n%s", r.Method, r.URL, err, raw)
		}
	} else if route.Operation.Responses.Status(res.StatusCode) == nil {
		v.b.t.Errorf("%s %s: the document does not know status %d", r.Method, r.URL, res.StatusCode)
	}
	return res, nil
}

func golden(t *testing.T, path string, have []byte) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, have, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "write it with -update")
	require.Equal(t, string(want), string(have), "%s: if the change is meant, write it with -update", path)
}

func TestDocuments(t *testing.T) {
	b := setup(t)
	t.Run("OpenAPIIsValidAndAsBefore", func(t *testing.T) {
		a := b.get("/openapi.json")
		require.Equal(t, 200, a.StatusCode)
		doc, err := openapi3.NewLoader().LoadFromData(a.body)
		require.NoError(t, err)
		require.NoError(t, doc.Validate(t.Context()))
		golden(t, "testdata/openapi.json", a.body)
	})
	t.Run("AsyncAPIIsAsBefore", func(t *testing.T) {
		a := b.get("/asyncapi.json")
		require.Equal(t, 200, a.StatusCode)
		golden(t, "testdata/asyncapi.json", a.body)
	})
	t.Run("YAMLAndConditions", func(t *testing.T) {
		a := b.get("/openapi.yaml")
		require.Equal(t, 200, a.StatusCode)
		require.Contains(t, string(a.body), "openapi: 3.1.0")
		require.Equal(t, 304, b.get("/openapi.yaml", "If-None-Match", a.Header.Get("ETag")).StatusCode)
	})
	t.Run("EveryOperationIsInTheDocument", func(t *testing.T) {
		doc, err := openapi3.NewLoader().LoadFromData(b.server.OpenAPI())
		require.NoError(t, err)
		n := 0
		for _, op := range b.server.Operations() {
			if op.ID == "" {
				continue // a file of the page
			}
			n++
			item := doc.Paths.Find(op.Path)
			require.NotNil(t, item, op.Path)
			require.NotNil(t, item.GetOperation(op.Method), op.Path)
		}
		require.Greater(t, n, 30)
	})
}
