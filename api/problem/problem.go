// Package problem is every error that is answered, as RFC 9457 has it, and the list of all kinds.
package problem

// The list of all kinds of problems, from which the page of documentation is made, and what makes a Problem of one (New, Invalid, Refused) and writes it as the
// answer (Write). Handlers return problems as errors: package rest writes them over HTTP, package rpc over NATS. Wrong places in an input are schema.Detail.

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bcc94042/instar/api/schema"
	"github.com/bcc94042/instar/machines"
)

// Problem is an error as clients get it (RFC 9457).
type Problem struct {
	Type            string          `json:"type" format:"uri-reference" example:"/docs#problem-transition-not-allowed" doc:"URL of the problem's documentation"`
	Title           string          `json:"title" doc:"Name of the problem, the same for every occurrence"`
	Status          int             `json:"status" doc:"The HTTP status"`
	Detail          string          `json:"detail" doc:"What happened in this case"`
	Code            string          `json:"code" example:"transition-not-allowed" doc:"Problem code, for programs: the last part of type"`
	Instance        string          `json:"instance,omitempty" format:"uri-reference" doc:"The path of the request"`
	RequestID       string          `json:"requestId,omitempty" doc:"Id under which the request is logged, as in the header X-Request-Id"`
	CurrentState    string          `json:"currentState,omitempty" doc:"The state of the entity"`
	AllowedCommands []string        `json:"allowedCommands,omitempty" doc:"Commands allowed in this state; a guard may still refuse them"`
	Errors          []schema.Detail `json:"errors,omitempty" doc:"Errors in the input by location; values are never repeated"`
	Page            string          `json:"page,omitempty" format:"uri-reference" example:"/ui/entities/service/hello" doc:"The entity in the web console, where what it is explains the refusal and the server has one"`

	headers http.Header
}

func (p *Problem) Error() string { return p.Code + ": " + p.Detail }

// Kind is a type of problem as the documentation explains it.
type Kind struct {
	Code   string
	Status int
	Title  string
	Doc    string // what it means
	Do     string // what to do
}

// The codes that are not the engine's (see the Code constants of machines).
const (
	CodeMalformed    = "malformed"
	CodeIncomplete   = "incomplete"
	CodeGone         = "gone"
	CodeTooLarge     = "payload-too-large"
	CodeAnswer       = "answer-too-large"
	CodeMediaType    = "unsupported-media-type"
	CodeAcceptable   = "not-acceptable"
	CodeMethod       = "method-not-allowed"
	CodeUnauthorized = "unauthorized"
	CodeForbidden    = "forbidden"
	CodeInProgress   = "idempotency-in-progress"
	CodeTimeout      = "operation-timeout"
	CodeQueueFull    = "queue-full"
	CodeRateLimited  = "rate-limited"
	CodeQuota        = "quota-exceeded"

	CodePreconditionRequired = "precondition-required"

	CodeUnavailable = "unavailable"
	CodeInternal    = "internal"
)

// Kinds are all types of problems, in the order of the documentation.
var Kinds = []Kind{
	{machines.CodeTransition, 409, "The state does not allow the command", "The entity has no edge for this command in its current state. Nothing changed.", "Look at currentState and allowedCommands. If the entity is on its way somewhere, wait for it (?settle=30s on the command before) and ask again."},
	{machines.CodeEvaluation, 409, "A rule of the machine failed", "A guard or an action of the table could not do its part with this command and the entity as it is; the detail says which. Nothing changed.", "Send another body, or have the table mended."},
	{machines.CodeGuard, 409, "A condition of the command does not hold", "The state takes this command, but only under a condition that does not hold now; the detail says which.", "Bring about what the detail asks for, then send the command again."},
	{machines.CodeExists, 409, "The entity exists already", "A command that begins a life met an entity that is alive.", "Choose another id, or use the existing entity."},
	{CodeQuota, 409, "The namespace is full", "As many entities live in the namespace as may (limits.entitiesPerNamespace), and the command would begin one more. Nothing was stored.", "End what is not needed any more, or let an operator raise the limit."},
	{machines.CodeNotFound, 404, "There is nothing here", "The path, the entity, the machine, the namespace or the dead letter does not exist, or is not yours to see.", "Check the path, the id and ?namespace=. A token of one namespace sees only that one."},
	{machines.CodePrecondition, 412, "The entity has moved on", "If-Match names a revision that the entity is not at.", "Read the entity, decide again, and send the command with the new ETag."},
	{CodePreconditionRequired, 428, "If-Match is needed", "Commands to entities of this machine must say which revision they are about (http.requireIfMatch). Nothing was stored.", "Read the entity, decide, and send the command with its ETag as If-Match."},
	{machines.CodeValidation, 422, "The request is not valid", "A name, a parameter, a header or a value of the body is not as the document says. Nothing was stored.", "errors lists every wrong place. Values are not repeated there, because they may be secret."},
	{CodeMalformed, 400, "The request cannot be read", "The body is not JSON or is nested too deeply, or the cursor does not belong to this list.", "Send one JSON value. Use a cursor only with the filters of the page that it came from."},
	{CodeIncomplete, 400, "Something that is needed is missing", "A registration lacks serviceName or nodeAddress. Nothing was stored.", "Send both."},
	{CodeGone, 410, "The instance is deregistered", "A heartbeat came for an instance that is out of the registry. Its record stays, with the reason.", "Register again; that begins the next generation."},
	{machines.CodeKeyReused, 422, "The idempotency key was used for something else", "A command with the same Idempotency-Key and another name or body was sent to this entity before.", "Use a new key for a new intention, and the same key only to repeat the same request."},
	{CodeInProgress, 409, "The first request is still in progress", "A command with the same Idempotency-Key was stored before and is not decided yet.", "Repeat the request with the same key after Retry-After: it gets the answer of the first one."},
	{machines.CodeUnknown, 409, "The outcome is no longer known", "A command with this id was processed, but its outcome is not known any more, or cannot be read.", "Read the entity and its events to see what happened."},
	{machines.CodeStale, 409, "The result comes too late", "A result belongs to an attempt that is not under way any more.", "Nothing: a newer attempt is under way, or the entity has moved on."},
	{machines.CodeParked, 409, "The entity is parked", "The stored value of the entity cannot be used by this version of the program, so nothing is done to it.", "An operator must look at the log and at the value in its bucket. A newer version of the program may have written it."},
	{machines.CodeDead, 500, "The command could not be processed", "The command failed every time it was tried and lies among the dead letters now. The entity is as it was.", "Look at GET /v1/dead-letters for the reason; redrive it once the cause is gone."},
	{CodeTooLarge, 413, "The body is too large", "A body may have up to 256 KiB.", "Send less."},
	{CodeAnswer, 413, "The answer is too large", "Over NATS an answer may be as large as the server's max_payload, which is 1 MiB by default.", "Ask for less: a filter, choose, or a smaller page. Or ask over HTTP."},
	{CodeMediaType, 415, "The body is not JSON", "Bodies are application/json.", "Set Content-Type: application/json."},
	{CodeAcceptable, 406, "This form is not offered", "The format that was asked for does not exist here.", "Use one of the formats that the document lists."},
	{CodeMethod, 405, "The method is not offered", "The path exists, but not for this method; Allow lists those that it has.", "Use one of the methods in Allow. State changes only by commands: POST …/{id}/{command}."},
	{CodeUnauthorized, 401, "A token is needed", "The request has no bearer token, or one that is not known.", "Send Authorization: Bearer <token>."},
	{CodeForbidden, 403, "This may not be done", "The role of the token is too small for this operation; or a server without tokens was asked under a foreign name, or by a page of another site.", "Use a token of the role that the detail names, or a loopback name; http.hosts allows other names."},
	{CodeTimeout, 504, "It was not reached in time", "The revision that minRevision asks for was not reached in time.", "Ask again; if it stays like this, look at /readyz?verbose for the lag of the index."},
	{CodeRateLimited, 429, "There are too many requests", "This client has as many connections, watches, waits or commands under way as one may have, or asks more often than it may; or commands come faster than their stream takes them. Nothing was done, and no command was stored.", "Wait for Retry-After, then send it again, and fewer at once."},
	{CodeQueueFull, 503, "There is no room for commands", "A limit of the NATS account or server keeps the stream of commands from growing. This request stored nothing; an earlier one under the same Idempotency-Key may have.", "Wait for Retry-After. An operator must make room or raise the limit."},
	{CodeUnavailable, 503, "The service cannot do this now", "Storage or messaging does not answer, or all clients together have as many connections, watches, waits or commands under way as there are. It is not known whether a command was stored.", "Wait for Retry-After and repeat the request with the same Idempotency-Key: it is applied at most once."},
	{CodeInternal, 500, "Something is wrong in the program", "An error that nobody expected. It is logged under the requestId.", "Tell an operator the requestId."},
}

var kindOf = func() map[string]*Kind {
	m := map[string]*Kind{}
	for i := range Kinds {
		m[Kinds[i].Code] = &Kinds[i]
	}
	return m
}()

// New makes a problem of a kind.
func New(code, detail string) *Problem {
	k := kindOf[code]
	if k == nil {
		k = kindOf[CodeInternal]
	}
	return &Problem{Type: "/docs#problem-" + k.Code, Title: k.Title, Status: k.Status, Detail: detail, Code: k.Code}
}

// Invalid is a problem with one place of the input.
func Invalid(location, message string) *Problem {
	p := New(machines.CodeValidation, location+": "+message)
	p.Errors = []schema.Detail{{Location: location, Message: message}}
	return p
}

// Header is a header that the answer has, or empty.
func (p *Problem) Header(name string) string { return p.headers.Get(name) }

// With adds a header to the answer.
func (p *Problem) With(header, value string) *Problem {
	if p.headers == nil {
		p.headers = http.Header{}
	}
	p.headers.Set(header, value)
	return p
}

// Gated is for a command that comes while nothing can be stored.
func Gated() *Problem {
	return Unavailable("this request stored nothing, because nothing can be stored now; /readyz?verbose says why")
}

// Unexpected is for a request whose handler panicked.
func Unexpected() *Problem {
	return New(CodeInternal, "an unexpected error; it is in the log")
}

// Unavailable is for what may succeed a second later.
func Unavailable(detail string) *Problem {
	return New(CodeUnavailable, detail).With("Retry-After", "1")
}

// Refused turns the engine's refusal into a problem.
func Refused(r *machines.Refusal) *Problem {
	p := New(r.Code, r.Message)
	p.CurrentState, p.AllowedCommands = r.State, r.Allowed
	for _, f := range r.Fields {
		location := "body"
		if f.Field != "body" {
			location += "." + f.Field
		}
		p.Errors = append(p.Errors, schema.Detail{Location: location, Message: f.Message})
	}
	return p
}

// Write answers with the problem. id is that of the request.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request, id string) {
	q := *p
	q.RequestID = id
	if Printable(r.URL.Path) && len(r.URL.Path) <= 512 {
		q.Instance = r.URL.EscapedPath()
	}
	body, err := json.Marshal(&q)
	if err != nil { // strings and numbers only
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	for _, name := range []string{"ETag", "Link", "Location", "Content-Disposition"} {
		h.Del(name)
	}
	for k, v := range q.headers {
		h[k] = v
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(q.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// Printable reports whether a text has no control characters.
func Printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfffd
	})
}

// LabelRule says what names, ids and namespaces are.
const LabelRule = "must be 1 to 63 of a-z, 0-9 and inner hyphens"
