package api

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// backupType is the media type of a backup (RFC 8878, 7.1).
const backupType = "application/zstd"

func (s *Server) backupRoutes() []*route {
	if s.o.Backup == nil {
		return nil
	}
	return []*route{{role: Admin, serve: (*request).backup, op: huma.Operation{
		OperationID: "get-backup", Method: http.MethodGet, Path: "/v1/backup", Tags: []string{"nodes"}, Summary: "Copy everything that is stored", Errors: []int{503},
		Description: "JSON lines, compressed by zstd, of all entities, events, dead letters, answers to keys, commands that wait and streams of outboxes; nothing stops meanwhile. " +
			"A file without its last line, \"end\", is not complete. `instar restore` makes an installation of it. A node makes one at a time.",
		Responses: map[string]*huma.Response{"200": {Description: "The backup", Content: map[string]*huma.MediaType{backupType: {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}}},
	}}}
}

// backup ends with a broken connection when it fails after it has begun: there is no other way to tell.
func (q *request) backup() error {
	if q.who.namespace != anyNamespace {
		return problem(codeForbidden, "a token of one namespace may not copy all of them")
	}
	if !q.backing.TryLock() {
		return problem(codeUnavailable, "this node makes a backup already").with("Retry-After", "60")
	}
	defer q.backing.Unlock()
	q.o.Log.Info("a backup begins", "request", q.id, "actor", q.who.name)
	out := &attachment{w: q.w}
	err := q.o.Backup(q.ctx(), out)
	if err == nil {
		q.o.Log.Info("a backup is complete", "request", q.id, "actor", q.who.name, "bytes", out.written)
		return nil
	}
	q.o.Log.Error("a backup is not complete", "request", q.id, "actor", q.who.name, "bytes", out.written, "error", err)
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
