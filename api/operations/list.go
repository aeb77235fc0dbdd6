package operations

import (
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
)

// BatchList is a page of batches, the one that has changed last first.
type BatchList struct {
	Items      []OperationStatus `json:"items" nullable:"false" doc:"As the operation of each says it, with the first 3 of its failures"`
	NextCursor string            `json:"nextCursor" doc:"Pass it as cursor= for those that changed before; empty on the last page"`
}

// listedFailures are shown of each batch in a list: all of a page would be thousands.
const listedFailures = 3

func (s *Service) listRoute(r *rest.Router) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.list, Op: huma.Operation{
		OperationID: "list-batches", Method: http.MethodGet, Path: "/v1/batches", Tags: []string{"operations"}, Summary: "List batches, the one that has changed last first",
		Description: "Those that run, and those that have ended, for 7 days after their last change. A batch that runs changes every few seconds, so it is before all others; one that changes while pages are read may be on two of them.",
		Errors:      []int{404, 422, 503},
		Parameters:  append(rest.NewestParams(), rest.QueryParam("namespace", "Those that were sent to this namespace, or * for all that the token may see", rest.Text(63))),
		Responses:   map[string]*huma.Response{"200": {Description: "A page", Content: r.BodyOf(reflect.TypeFor[BatchList]())}},
	}}
}

// list reads the newest values of the bucket from its stream, which has them in the order of their changes, however many there are.
func (s *Service) list(q *rest.Request) error {
	namespace, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return p
	}
	keys := ">"
	if namespace != "" {
		keys = namespace + ".>"
	}
	bucket := s.store.Names.Bucket(streams.OperationsBucket)
	found, next, err := s.store.Newest(q, streams.BucketStream(bucket), streams.BucketSubject(bucket, keys))
	if err != nil {
		return err
	}
	out := BatchList{Items: []OperationStatus{}, NextCursor: next}
	for _, m := range found {
		_, id, _ := streams.BucketKey(m.Subject)
		var b batch
		if json.Unmarshal(m.Data, &b) != nil { // written by hand, or a marker
			continue
		}
		b.Progress.Failures = append([]BatchFailure{}, b.Progress.Failures[:min(len(b.Progress.Failures), listedFailures)]...)
		out.Items = append(out.Items, *operationOf(id, &b))
	}
	return q.JSON(http.StatusOK, out)
}
