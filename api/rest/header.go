package rest

// What handlers read from the headers of a request: conditions (EntityTags, Unchanged), how long the client waits (Preferred,
// Waiting, with ?settle), idempotency key, reason. What cannot be read is a problem 422, or ignored where the RFC says so (Prefer,
// If-None-Match). The second half makes the parameters, headers and schemas with which routes describe these in the OpenAPI document.

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/streams"
)

// EntityTag is one entity tag of a condition.
type EntityTag struct {
	Weak  bool
	Value string
}

// EntityTags reads If-Match and If-None-Match (RFC 9110, 13.1): "*", or a list of entity tags. ok is false for anything else.
func EntityTags(lines []string) (list []EntityTag, any, ok bool) {
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		return nil, true, true
	}
	for text != "" {
		t := EntityTag{}
		if rest, weak := strings.CutPrefix(text, "W/"); weak {
			t.Weak, text = true, rest
		}
		rest, quoted := strings.CutPrefix(text, `"`)
		end := strings.IndexByte(rest, '"')
		if !quoted || end < 0 || strings.ContainsAny(rest[:end], " \t\x7f") {
			return nil, false, false
		}
		t.Value = rest[:end]
		list = append(list, t)
		text = strings.TrimLeft(rest[end+1:], " \t")
		if text == "" {
			break
		}
		if text[0] != ',' {
			return nil, false, false
		}
		text = strings.TrimLeft(text, ", \t") // empty members are allowed
	}
	return list, false, len(list) > 0
}

// ETag is the strong entity tag of a revision.
func ETag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// Unchanged reports whether If-None-Match names an entity tag; the comparison is weak, as it must be.
func Unchanged(r *http.Request, value string) bool {
	lines := r.Header["If-None-Match"]
	if len(lines) == 0 {
		return false
	}
	list, all, ok := EntityTags(lines)
	if !ok {
		return false // a condition that cannot be read is none
	}
	for _, t := range list {
		all = all || t.Value == value
	}
	return all
}

// preferences are the parts of Prefer (RFC 7240) that are supported here.
type preferences struct {
	Async bool
	waits bool
	Wait  time.Duration // with waits: how long the caller waits for an answer
}

// maxPreferred is how long Prefer may make a request wait; ?settle may make it wait longer.
const maxPreferred = 30 * time.Second

// Preferred reads Prefer. What is not known or cannot be read is ignored, as it must be, and the first of two counts.
func Preferred(r *http.Request) (p preferences) {
	for _, pref := range strings.Split(strings.Join(r.Header["Prefer"], ","), ",") {
		pref, _, _ = strings.Cut(pref, ";")
		name, value, _ := strings.Cut(pref, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			p.Async = true
		case "wait":
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err == nil && !p.waits {
				p.waits, p.Wait = true, min(time.Duration(n)*time.Second, maxPreferred)
			}
		}
	}
	return p
}

// Applied sets Preference-Applied of an answer; later is that of a 202.
func (p preferences) Applied(w http.ResponseWriter, later bool) {
	var list []string
	if later && p.Async {
		list = append(list, "respond-async")
	}
	if p.waits {
		list = append(list, "wait="+strconv.Itoa(int(p.Wait/time.Second)))
	}
	if len(list) > 0 {
		w.Header().Set("Preference-Applied", strings.Join(list, ", "))
	}
}

// IdempotencyKey reads the key, in quotes as the draft has it, or bare. It is empty when there is none.
func IdempotencyKey(r *http.Request) (string, *problem.Problem) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(lines[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : len(key)-1])
	}
	if len(lines) > 1 || key == "" || len(key) > MaxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return "", problem.Invalid("header.Idempotency-Key", "must be 1 to 128 visible ASCII characters, in quotes or without")
	}
	if streams.MadeUp(key) {
		return "", problem.Invalid("header.Idempotency-Key", "must not begin with ~, as the ids of commands without a key do")
	}
	return key, nil
}

const (
	MaxKey    = 128  // bytes
	MaxReason = 1024 // characters
)

// Reason reads why a command is sent. Control characters are refused: it is shown in logs and terminals.
func Reason(r *http.Request) (string, *problem.Problem) {
	text := r.Header.Get("Instar-Reason")
	if utf8.RuneCountInString(text) > MaxReason || !problem.Printable(text) {
		return "", problem.Invalid("header.Instar-Reason", "must be up to 1024 characters of text in UTF-8 without control characters")
	}
	return text, nil
}

// Waits reads how long the sender says that it waits for the outcome, by whatever means; without the header it is otherwise.
func Waits(r *http.Request, otherwise time.Duration) (time.Duration, *problem.Problem) {
	line := r.Header.Get(streams.HeaderWait)
	if line == "" {
		return otherwise, nil
	}
	wait, ok := streams.ParseWait(line)
	if !ok {
		return 0, problem.Invalid("header."+streams.HeaderWait, "must be a duration such as 30s")
	}
	return wait, nil
}

// WaitOptions are how long a request waits for what comes of its command.
type WaitOptions struct {
	preferences
	Settle time.Duration // until the entity has left its transitional state
	Began  time.Time
}

// maxSettle is how long a request may wait for an entity to settle.
const maxSettle = 5 * time.Minute

// Waiting reads ?settle, a duration or seconds, or else what Prefer says.
func (q *Request) Waiting() (w WaitOptions, p *problem.Problem) {
	w.preferences, w.Began = Preferred(q.R), time.Now()
	text := q.Query.Get("settle")
	if text == "" {
		w.Settle = w.Wait
		return w, nil
	}
	d, ok := streams.ParseWait(text)
	if !ok {
		return w, problem.Invalid("query.settle", "must be a duration such as 30s")
	}
	w.Settle, w.waits = min(d, maxSettle), false
	return w, nil
}

// Not reports whether the client waits only until the command is stored.
func (w WaitOptions) Not() bool { return w.waits && w.Wait == 0 || w.Async && !w.waits }

// StoredWithin is how long a command may take until it is known to be stored, however short the preferred wait.
const StoredWithin = 2 * time.Second

// Preferred is how long the sender prefers to wait for the answer of the engine; 0 is no preference.
func (w WaitOptions) Preferred() time.Duration {
	if w.waits {
		return max(w.Wait, StoredWithin)
	}
	return 0
}

// HeaderParam documents a header of requests.
func HeaderParam(name, doc string, example any) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Example: example, Schema: &huma.Schema{Type: huma.TypeString}}
}

// QueryParam documents a query parameter, and says what is taken.
func QueryParam(name, doc string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: schema}
}

// Text is the schema of a string of up to so many characters.
func Text(most int) *huma.Schema { return &huma.Schema{Type: huma.TypeString, MaxLength: &most} }

// Number is the schema of a whole number of at least so much.
func Number(least float64) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least}
}

// Instant is the schema of a time.
func Instant() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "date-time"} }

// Boolean is the schema of a flag.
func Boolean() *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// NamespaceParam is on every operation that is about entities.
func NamespaceParam() *huma.Param {
	p := QueryParam("namespace", "The namespace; that of the token, or default", Text(63))
	p.Example = "default"
	return p
}

// LimitParam is on every operation that answers with a page of [Request.PageSize].
func LimitParam() *huma.Param {
	limit := Number(1)
	limit.Default = DefaultPage
	return QueryParam("limit", "Size of the page; more than 500 is taken for 500", limit)
}

// DefaultNewest is how many are on a page of what is newest that does not say how many, of at most 100.
const DefaultNewest = 50

// NewestParams are on every operation that answers with what a stream has, the newest first.
func NewestParams() []*huma.Param {
	limit, most := Number(1), 100.0
	limit.Maximum = &most
	return []*huma.Param{QueryParam("limit", "How many at most, 50 when it is not said", limit), QueryParam("cursor", "nextCursor of the page before", Number(1))}
}

// HeaderReplayed is on the answer to an earlier request under the same key.
const HeaderReplayed = "Idempotent-Replayed"

// ReplayedHeader describes it.
func ReplayedHeader() *huma.Param {
	return &huma.Param{Schema: Boolean(), Description: "true if this is the stored answer of an earlier request with the same Idempotency-Key; else absent"}
}

// HeaderStale is on answers from memory, only while the node may be behind.
const HeaderStale = "X-Instar-Stale-Seconds"

// StaleHeader describes [HeaderStale].
func StaleHeader() *huma.Param {
	return &huma.Param{Schema: &huma.Schema{Type: huma.TypeNumber}, Description: "Only while the node receives nothing from the bucket, or cannot reach the others: the answer is its state of so many seconds ago"}
}

// Replayed says that the answer is that of an earlier request under the same key.
func (q *Request) Replayed() { q.W.Header().Set(HeaderReplayed, "true") }
