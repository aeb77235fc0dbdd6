package knative_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
)

// on fails the requests of one method.
func on(method string, f knativetest.Failure) func(*http.Request) *knativetest.Failure {
	return func(r *http.Request) *knativetest.Failure {
		if r.Method == method {
			return &f
		}
		return nil
	}
}

func TestAnAPIServerWithoutSecretsIsNotOneWithoutKnative(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Fail(on(http.MethodGet, knativetest.Failure{Code: 404, Message: "404 page not found"}))
	err := b.Mark(t.Context(), asking(1, image("web:1")).Request)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "has no Secrets (v1): is it one of Kubernetes?")
}

// Each answer of an API server has its own code, the words of the API server, and the wait that it asked for.
func TestAnswersOfTheAPIServer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		failure knativetest.Failure
		code    providers.Code
		after   time.Duration
		says    string
	}{
		"BadRequest":           {knativetest.Failure{Code: 400, Reason: "BadRequest", Message: "admission webhook \"validation.webhook.serving.knative.dev\" denied the request: must not set the field(s): PORT"}, providers.Invalid, 0, "must not set the field(s): PORT"},
		"Unauthorized":         {knativetest.Failure{Code: 401, Reason: "Unauthorized", Message: "Unauthorized"}, providers.Unavailable, 15 * time.Second, "does not accept instar's credentials (401)"},
		"Forbidden":            {knativetest.Failure{Code: 403, Reason: "Forbidden", Message: "User \"instar\" cannot patch resource"}, providers.Unavailable, 15 * time.Second, "instar may not apply Knative services in the namespace default (403): give its account the role of deploy/knative-rbac.yaml: User \"instar\""},
		"DeniedByPolicy":       {knativetest.Failure{Code: 403, Reason: "Forbidden", Message: "admission webhook \"policy\" denied the request: no images of others"}, providers.Invalid, 0, "no images of others"},
		"TheNamespaceEnds":     {knativetest.Failure{Code: 403, Reason: "Forbidden", Message: "namespace default is being terminated", Details: knativetest.Object{"causes": []any{knativetest.Object{"reason": "NamespaceTerminating"}}}}, providers.Unavailable, 0, "is being terminated"},
		"NoNamespace":          {knativetest.Failure{Code: 404, Reason: "NotFound", Message: `namespaces "default" not found`}, providers.Invalid, 0, `namespaces "default" not found`},
		"NoKnative":            {knativetest.Failure{Code: 404, Message: "404 page not found"}, providers.Unavailable, 0, "has no Knative services (serving.knative.dev/v1): is Knative Serving installed?"},
		"Expired":              {knativetest.Failure{Code: 410, Reason: "Expired", Message: "too old"}, providers.Unavailable, 0, "answers 410: too old"},
		"Invalid":              {knativetest.Failure{Code: 422, Reason: "Invalid", Message: "spec.template: Invalid value"}, providers.Invalid, 0, "spec.template: Invalid value"},
		"TooMany":              {knativetest.Failure{Code: 429, Message: "Too many requests, please try again later.", RetryAfter: 7}, providers.Unavailable, 7 * time.Second, "answers 429"},
		"TooManyInTheStatus":   {knativetest.Failure{Code: 429, Reason: "TooManyRequests", Message: "slow down", Details: knativetest.Object{"retryAfterSeconds": 9}}, providers.Unavailable, 9 * time.Second, "slow down"},
		"InternalError":        {knativetest.Failure{Code: 500, Reason: "InternalError", Message: "failed calling webhook"}, providers.Unavailable, 0, "answers 500: failed calling webhook"},
		"NotReadyYet":          {knativetest.Failure{Code: 503, Message: "apiserver is shutting down", RetryAfter: 3}, providers.Unavailable, 3 * time.Second, "answers 503"},
		"AProxyBetween":        {knativetest.Failure{Code: 502, Message: "<html>Bad Gateway</html>"}, providers.Unavailable, 0, "answers 502"},
		"ConflictsWithoutEnd":  {knativetest.Failure{Code: 409, Reason: "Conflict", Message: "the object has been modified"}, providers.Unavailable, 500 * time.Millisecond, "being changed by others all the time"},
		"AnAnswerThatIsNoJSON": {knativetest.Failure{Code: 200, Message: "<html>sign in</html>"}, providers.Unavailable, 0, "cannot reach the API server"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.cluster.Fail(on(http.MethodPatch, c.failure))
			_, err := b.Apply(t.Context(), asking(1, image("web:1")))
			require.Equal(t, c.code, providers.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, c.after, providers.Failure(err).RetryAfter)
			b.cluster.Fail(nil)
			b.applied(t, asking(1, image("web:1")))
		})
	}
}

func TestAServiceThatIsMissingIsToldFromAnAPIThatIs(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	req := providers.ObserveRequest{Request: asking(1, image("web:1")).Request}
	_, err := b.Observe(t.Context(), req)
	require.True(t, providers.IsNotFound(err), "%v", err)
	for _, f := range []knativetest.Failure{
		{Code: 404, Message: "404 page not found"},
		{Code: 403, Reason: "Forbidden", Message: "no"},
		{Code: 401, Reason: "Unauthorized", Message: "no"},
		{Code: 500, Reason: "InternalError", Message: "etcd"},
	} {
		b.cluster.Fail(on(http.MethodGet, f))
		_, err = b.Observe(t.Context(), req)
		require.True(t, providers.IsUnavailable(err), "%v", err)
		require.True(t, providers.IsUnavailable(b.Delete(t.Context(), providers.DeleteRequest{Request: req.Request})))
	}
	b.http.Close()
	_, err = b.Observe(t.Context(), req)
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "cannot reach the API server at http://127.0.0.1:")
	require.ErrorContains(t, err, "connection refused")
}

func TestOneTryIsOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Fail(on(http.MethodPatch, knativetest.Failure{Code: 429, Message: "later", RetryAfter: 1}))
	_, err := b.Apply(t.Context(), asking(1, image("web:1")))
	require.True(t, providers.IsUnavailable(err))
	path := "/apis/serving.knative.dev/v1/namespaces/default/services/web"
	require.Equal(t, []string{"GET " + path, "PATCH " + path}, b.cluster.Calls(), "the client does not repeat by itself")
}

func TestASlowServerIsNotWaitedForLongerThanTheDeadline(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *knative.Config) { c.Timeout = 100 * time.Millisecond })
	b.cluster.Fail(on(http.MethodGet, knativetest.Failure{Code: 200, Hang: time.Hour}))
	began := time.Now()
	for _, err := range b.all(t.Context()) {
		require.Equal(t, providers.Timeout, providers.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, "gave no answer within 100ms")
		require.True(t, providers.Failure(err).Retryable)
	}
	require.Less(t, time.Since(began), awhile)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, err := range b.all(ctx) {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
}

// all makes every call.
func (b *bench) all(ctx context.Context) []error {
	req := asking(1, image("web:1"))
	_, err := b.Apply(ctx, req)
	_, seen := b.Observe(ctx, providers.ObserveRequest{Request: req.Request})
	return []error{err, seen, b.Delete(ctx, providers.DeleteRequest{Request: req.Request})}
}

// Whoever is overtaken reads again and judges anew.
func TestConflictsAreReadAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.applied(t, asking(1, image("web:1")))
	var overtaken atomic.Int32
	race := func(method string, times int32) {
		overtaken.Store(0)
		b.cluster.Fail(func(r *http.Request) *knativetest.Failure {
			if r.Method == method && overtaken.Add(1) <= times {
				b.cluster.SetStatus("default", "web", knativetest.Object{"observedGeneration": overtaken.Load()})
			}
			return nil
		})
	}
	race(http.MethodPatch, 3)
	require.Equal(t, int64(2), b.applied(t, asking(2, image("web:2"))).Generation)
	require.Equal(t, int32(4), overtaken.Load())
	race(http.MethodDelete, 3)
	require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: asking(3, image("web:2")).Request}))
	require.Equal(t, int32(4), overtaken.Load())
}

// Between the look that finds nothing and the apply, somebody else makes an object of that name.
func TestAnObjectThatComesMeanwhileIsNotTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Fail(func(r *http.Request) *knativetest.Failure {
		if r.Method == http.MethodPatch && b.cluster.Get("default", "web") == nil {
			b.cluster.Put("default", "web", knativetest.Object{"spec": knativetest.Object{"mine": "yes"}})
		}
		return nil
	})
	_, err := b.Apply(t.Context(), asking(1, image("web:1")))
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "not of this instar")
	require.Equal(t, knativetest.Object{"mine": "yes"}, b.cluster.Get("default", "web")["spec"])
}

func TestLongWordsAreClipped(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.cluster.Fail(on(http.MethodPatch, knativetest.Failure{Code: 422, Reason: "Invalid", Message: strings.Repeat("long\x1b[31m ", 9999)}))
	_, err := b.Apply(t.Context(), asking(1, image("web:1")))
	f := providers.Failure(err)
	require.Less(t, len(f.Message), 1100)
	require.NotContains(t, f.Message, "\x1b")
}
