package admin

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
)

// backupType is the media type of a backup (RFC 8878, 7.1).
const backupType = "application/zstd"

func (s *Service) backupRoutes() []*rest.Route {
	if s.o.Backup == nil {
		return nil
	}
	return []*rest.Route{{Role: auth.Admin, Serve: s.copyAll, Op: huma.Operation{
		OperationID: "get-backup", Method: http.MethodGet, Path: "/v1/backup", Tags: []string{"nodes"}, Summary: "Copy everything that is stored", Errors: []int{503},
		Description: "JSON lines, compressed with zstd, of all entities, events, dead letters, stored answers, pending commands and outbox streams, taken while the server runs. " +
			"A file without its last line, \"end\", is not complete. `instar restore` makes an installation of it. A node makes one at a time.",
		Responses: map[string]*huma.Response{"200": {Description: "The backup", Content: map[string]*huma.MediaType{backupType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}},
	}}}
}

// backup ends with a broken connection when it fails after it has begun: there is no other way to tell.
func (s *Service) copyAll(q *rest.Request) error {
	if q.Who.Namespace != auth.AnyNamespace {
		return problem.New(problem.CodeForbidden, "a token of one namespace may not copy all of them")
	}
	if !s.backing.TryLock() {
		return problem.New(problem.CodeUnavailable, "this node makes a backup already").With("Retry-After", "60")
	}
	defer s.backing.Unlock()
	s.rest.Log.Info("a backup begins", "request", q.Id, "actor", q.Who.Name)
	out := &attachment{w: q.W}
	err := s.o.Backup(q.Context(), out)
	if err == nil {
		s.rest.Log.Info("a backup is complete", "request", q.Id, "actor", q.Who.Name, "bytes", out.written)
		return nil
	}
	s.rest.Log.Error("a backup is not complete", "request", q.Id, "actor", q.Who.Name, "bytes", out.written, "error", err)
	if out.written > 0 {
		panic(http.ErrAbortHandler)
	}
	return err
}

// attachment begins its answer with the first bytes: before them a problem can be told.
type attachment struct {
	w       http.ResponseWriter
	written int64
}

func (a *attachment) Write(b []byte) (int, error) {
	if a.written == 0 {
		a.w.Header().Set("Content-Type", backupType)
		a.w.Header().Set("Cache-Control", "no-store")
	}
	n, err := a.w.Write(b)
	a.written += int64(n)
	return n, err
}
