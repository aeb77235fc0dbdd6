package instances

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
)

// historyWait is how long an answer about the past may take.
const historyWait = 30 * time.Second

// discoverAt answers from the stream of events.
func (s *Service) discoverAt(q *rest.Request, dq discovery.Query, text string) error {
	for _, name := range slices.Sorted(maps.Keys(q.Query)) {
		if name == "index" || name == "wait" || name == "minRevision" {
			return problem.Invalid("query."+name, "goes without at")
		}
	}
	at, p := readMoment(text)
	if p != nil {
		return p
	}
	var r discovery.Result
	var asOf discovery.AsOf
	err := q.InTurn(func() (err error) {
		ctx, cancel := context.WithTimeout(q.Context(), historyWait)
		defer cancel()
		r, asOf, err = s.catalog.At(ctx, dq, at)
		return err
	})
	if errors.Is(err, discovery.ErrTooLong) {
		return problem.Invalid("query.at", "too much has happened to this service to tell it again")
	}
	if err != nil {
		return err
	}
	if r.Endpoints == nil {
		r.Endpoints = []discovery.Endpoint{}
	}
	return q.JSON(http.StatusOK, Discovered{Service: dq.Service, Namespace: dq.Namespace, Protected: r.Protected, AsOf: &asOf, Instances: r.Endpoints})
}

// readMoment reads a time or a sequence.
func readMoment(text string) (discovery.Moment, *problem.Problem) {
	if seq, err := strconv.ParseUint(text, 10, 64); err == nil && seq > 0 {
		return discovery.Moment{Sequence: seq}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() < 1970 || t.Year() > 2200 {
		return discovery.Moment{}, problem.Invalid("query.at", "must be a date-time of RFC 3339 between 1970 and 2200, or a sequence above 0")
	}
	return discovery.Moment{Time: t}, nil
}
