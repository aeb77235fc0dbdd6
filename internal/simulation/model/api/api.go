package api

// The API: Request finds who answers, by the tokens of the subject. Streams are in streams.go, consumers in consumers.go. An answer is
// JSON of the server's own types.

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/internal/simulation/model/store"
	"github.com/nats-io/nats-server/v2/server"
)

// API answers questions about a core.
type API struct {
	Name string // of the server

	c             *core.Core
	total, errors uint64
}

// New is the API of a core.
func New(c *core.Core) *API { return &API{c: c} }

// Request answers a question to the API. It is false where nobody would be there to answer.
func (a *API) Request(m store.Message) bool {
	t := strings.Split(m.To, ".")
	verb := strings.Join(t[2:min(len(t), 5)], ".")
	switch {
	case strings.HasPrefix(verb, "CONSUMER.MSG.NEXT") || strings.HasPrefix(verb, "DIRECT.GET"):
		return a.direct(m, t)
	case strings.HasPrefix(verb, "CONSUMER.RESET"):
		a.consumerReset(m, t)
		return true
	}
	a.total++
	switch {
	case m.To == "$JS"+".API.INFO":
		a.accountInfo(m)
	case t[2] == "STREAM":
		a.streamRequest(m, t)
	case t[2] == "CONSUMER":
		a.consumerRequest(m, t)
	default:
		a.bad(m)
	}
	return true
}

// direct are the subjects that a stream or a consumer itself listens on.
func (a *API) direct(m store.Message, t []string) bool {
	if t[2] == "DIRECT" {
		s := a.c.Stream(at(t, 4))
		if s == nil || !s.Config().AllowDirect || s.Silent() {
			return s != nil && s.Config().AllowDirect
		}
		a.directGet(s, m, t)
		return true
	}
	o := a.c.Consumer(at(t, 5), at(t, 6))
	if o == nil || len(t) != 7 {
		return false
	}
	if !a.c.Stream(at(t, 5)).Silent() {
		o.Pull(m.Reply, m.Data)
	}
	return true
}

func at(t []string, i int) string {
	if i < len(t) {
		return t[i]
	}
	return ""
}

func (a *API) answer(m store.Message, response any) {
	b, _ := json.Marshal(response) // the server's types
	a.c.Reply(m.Reply, b)
}

// bad is for what is no question. The server does not answer it.
func (a *API) bad(store.Message) { a.errors++ }

// parse decodes a request, strictly as the server does.
func parse(body []byte, into any) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// object reports whether a body is JSON of some fields, which the server takes for a request; anything else it takes for none.
func object(body []byte) bool {
	b := bytes.TrimSpace(body)
	return len(b) > 0 && (b[0] == '{' || b[0] == '[')
}

func empty(body []byte) bool {
	b := bytes.Join(bytes.Fields(body), nil)
	return len(b) == 0 || bytes.Equal(b, []byte("{}"))
}

func (a *API) accountInfo(m store.Message) {
	stats := server.JetStreamAccountStats{}
	stats.Memory, stats.Store = a.c.StoredBytes(server.MemoryStorage), a.c.StoredBytes(server.FileStorage)
	stats.Streams, stats.API.Total, stats.API.Errors, stats.API.Level = len(a.c.Names()), a.total, a.errors, server.JSApiLevel
	for _, n := range a.c.Names() {
		stats.Consumers += len(a.c.Stream(n).Consumers())
	}
	stats.Limits = server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1}
	a.answer(m, &server.JSApiAccountInfoResponse{ApiResponse: server.ApiResponse{Type: server.JSApiAccountInfoResponseType}, JetStreamAccountStats: &stats})
}
