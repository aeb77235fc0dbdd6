package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// directGet answers a read that goes to any replica: by a request, or the last message under the subject that the question ends with. Reads of
// many at once are not modelled.
func (a *API) directGet(s *core.Stream, m store.Message, t []string) {
	var req server.JSApiMsgGetRequest
	if m.Reply == "" {
		return
	}
	if len(m.Data) > 0 && json.Unmarshal(m.Data, &req) != nil {
		a.status(m.Reply, "408 Malformed Request")
		return
	}
	if len(t) > 5 {
		if req.LastFor != "" || req.NextFor != "" || req.Seq != 0 || req.Batch != 0 || req.StartTime != nil || len(req.MultiLastFor) > 0 {
			a.status(m.Reply, "408 Bad Request")
			return
		}
		req.LastFor = strings.Join(t[5:], ".")
	}
	switch {
	case req.Batch > 0 || len(req.MultiLastFor) > 0:
		a.status(m.Reply, "500 not modelled")
		return
	case req.Seq == 0 && req.LastFor == "" && req.NextFor == "" && req.StartTime == nil:
		a.status(m.Reply, "408 Empty Request")
		return
	case !readable(&req):
		a.status(m.Reply, "408 Bad Request")
		return
	}
	e := read(s, &req)
	if e == nil {
		a.status(m.Reply, "404 Message Not Found")
		return
	}
	header := fmt.Appendf(nil, "Nats-Stream: %s\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %s\r\n\r\n", s.Config().Name, e.Subject, e.Seq, core.When(e.TS).Format(time.RFC3339Nano))
	if own := e.Header; len(own) > 0 {
		header = append(own[:len(own)-len(store.CRLF):len(own)-len(store.CRLF)], header...)
	} else {
		header = append([]byte(store.HeaderLine), header...)
	}
	if req.NoHeaders {
		header = nil
	}
	a.c.Send(store.Message{To: m.Reply, Header: header, Data: e.Data})
}

func (a *API) status(reply, line string) {
	a.c.Send(store.Message{To: reply, Header: []byte("NATS/1.0 " + line + "\r\n\r\n")})
}
