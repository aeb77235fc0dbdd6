package knative

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bcc94042/instar/providers"
)

// credentialsWait is the least wait after credentials were not accepted: somebody has to replace them first.
const credentialsWait = 15 * time.Second

// late is the error of a call whose time is over.
func (c *call) late() error {
	if err := c.parent.Err(); err != nil {
		return err
	}
	return providers.Errorf(providers.Timeout, "the API server at %s gave no answer within %s", c.gateway.host, c.gateway.config.Timeout)
}

// failed is the gateway's error for one of the client's.
func (c *call) failed(what string, err error) error {
	if c.ctx.Err() != nil {
		return c.late()
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		var transport *url.Error
		if errors.As(err, &transport) {
			err = transport.Err
		}
		return c.later("cannot reach the API server at %s: %v", c.gateway.host, err)
	}
	status := answer.Status()
	words := status.Message
	switch code := int(status.Code); {
	case noSuchResource(err):
		return c.later("the API server at %s has no %ss (%s): %s", c.gateway.host, c.kind.word, c.kind.resource.GroupVersion(), c.kind.ask)
	case apierrors.HasStatusCause(err, "NamespaceTerminating"): // a 403 that goes by itself
		return c.later("%s", words)
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return errOvertaken
	case code == http.StatusNotFound && what == "get":
		return providers.Errorf(providers.NotFound, "there is no %s %s/%s", c.kind.word, c.space, c.name)
	case code == http.StatusNotFound:
		return providers.Errorf(providers.Invalid, "cannot %s the %s %s/%s: %s", what, c.kind.word, c.space, c.name, words)
	case code == http.StatusUnauthorized:
		*c.wait = max(*c.wait, credentialsWait)
		return c.later("the API server at %s does not accept instar's credentials (401): renew those of the kubeconfig", c.gateway.host)
	case code == http.StatusForbidden && !denied(words):
		*c.wait = max(*c.wait, credentialsWait)
		return c.later("instar may not %s %ss in the namespace %s (403): give its account the role of deploy/%s: %s", what, c.kind.word, c.space, c.kind.role, words)
	case code == http.StatusBadRequest, code == http.StatusUnprocessableEntity, code == http.StatusRequestEntityTooLarge, code == http.StatusForbidden:
		return providers.Errorf(providers.Invalid, "the API server refuses to %s the %s %s/%s (%d): %s", what, c.kind.word, c.space, c.name, code, words)
	}
	if s := status.Details; s != nil {
		*c.wait = max(*c.wait, time.Duration(s.RetryAfterSeconds)*time.Second)
	}
	return c.later("the API server at %s answers %d: %s", c.gateway.host, status.Code, words)
}

// later is Unavailable, with the wait that the API server asked for.
func (c *call) later(format string, args ...any) error {
	return providers.Later(*c.wait, format, args...)
}

// noSuchResource: the path is unknown to the API server, which is not the absence of one object.
func noSuchResource(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// denied: an admission webhook or policy said no. The API gives it the code that a missing role has, and no other mark.
func denied(words string) bool {
	return strings.HasPrefix(words, "admission webhook ") && strings.Contains(words, " denied the request")
}

type waitKey struct{}

// keepWait takes Retry-After from answers and keeps it with the call. The client would repeat the request by itself up
// to ten times otherwise, while the engine thinks of one try.
func keepWait(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil || resp.Header.Get("Retry-After") == "" {
			return resp, err
		}
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is not what API servers send
		if wait, ok := req.Context().Value(waitKey{}).(*time.Duration); ok {
			*wait = time.Duration(max(seconds, 0)) * time.Second
		}
		resp.Header.Del("Retry-After")
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
