package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/streams"
)

// tag is one entity tag of a condition.
type tag struct {
	weak  bool
	value string
}

// tags reads If-Match and If-None-Match (RFC 9110, 13.1): "*", or a list of entity tags. ok is false for anything else.
func tags(lines []string) (list []tag, any, ok bool) {
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		return nil, true, true
	}
	for text != "" {
		t := tag{}
		if rest, weak := strings.CutPrefix(text, "W/"); weak {
			t.weak, text = true, rest
		}
		rest, quoted := strings.CutPrefix(text, `"`)
		end := strings.IndexByte(rest, '"')
		if !quoted || end < 0 || strings.ContainsAny(rest[:end], " \t\x7f") {
			return nil, false, false
		}
		t.value = rest[:end]
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

// etag is the strong entity tag of a revision.
func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// unchanged reports whether If-None-Match names an entity tag; the comparison is weak, as it must be.
func unchanged(r *http.Request, value string) bool {
	lines := r.Header["If-None-Match"]
	if len(lines) == 0 {
		return false
	}
	list, all, ok := tags(lines)
	if !ok {
		return false // a condition that cannot be read is none
	}
	for _, t := range list {
		all = all || t.value == value
	}
	return all
}

// preferences are what of Prefer (RFC 7240) is known here.
type preferences struct {
	async bool
	waits bool
	wait  time.Duration // with waits: how long the caller waits for an answer
}

// maxPreferred is how long Prefer may make a request wait; ?settle may make it wait longer.
const maxPreferred = 30 * time.Second

// preferred reads Prefer. What is not known or cannot be read is ignored, as it must be, and the first of two counts.
func preferred(r *http.Request) (p preferences) {
	for _, pref := range strings.Split(strings.Join(r.Header["Prefer"], ","), ",") {
		pref, _, _ = strings.Cut(pref, ";")
		name, value, _ := strings.Cut(pref, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "respond-async":
			p.async = true
		case "wait":
			n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
			if err == nil && !p.waits {
				p.waits, p.wait = true, min(time.Duration(n)*time.Second, maxPreferred)
			}
		}
	}
	return p
}

// applied is the Preference-Applied of an answer, which may say "later".
func (p preferences) applied(w http.ResponseWriter, later bool) {
	var list []string
	if later && p.async {
		list = append(list, "respond-async")
	}
	if p.waits {
		list = append(list, "wait="+strconv.Itoa(int(p.wait/time.Second)))
	}
	if len(list) > 0 {
		w.Header().Set("Preference-Applied", strings.Join(list, ", "))
	}
}

// idempotencyKey reads the key, in quotes as the draft has it, or bare. It is empty when there is none.
func idempotencyKey(r *http.Request) (string, *Problem) {
	lines := r.Header["Idempotency-Key"]
	if len(lines) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(lines[0])
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : len(key)-1])
	}
	if len(lines) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		return "", invalid("header.Idempotency-Key", "must be 1 to 128 visible ASCII characters, in quotes or without")
	}
	if streams.MadeUp(key) {
		return "", invalid("header.Idempotency-Key", "must not begin with ~, as the ids of commands without a key do")
	}
	return key, nil
}

const (
	maxKey    = 128
	maxReason = 1024
)

// reason reads why a command is sent. Control characters are refused: it ends in logs and terminals.
func reason(r *http.Request) (string, *Problem) {
	text := r.Header.Get("Instar-Reason")
	if len(text) > maxReason || !printable(text) {
		return "", invalid("header.Instar-Reason", "must be up to 1024 characters of text without control characters")
	}
	return text, nil
}

// waits reads how long the sender says that it waits, by whatever means; else it is for this request's answer.
func waits(r *http.Request, otherwise time.Duration) (time.Duration, *Problem) {
	line := r.Header.Get(streams.HeaderWait)
	if line == "" {
		return otherwise, nil
	}
	wait, ok := streams.ParseWait(line)
	if !ok {
		return 0, invalid("header."+streams.HeaderWait, "must be a duration such as 30s")
	}
	return wait, nil
}

// waitOptions are how long a request waits for what comes of its command.
type waitOptions struct {
	preferences
	settle time.Duration // until the entity has left its transitional state
	began  time.Time
}

// maxSettle is how long a request may wait for an entity to settle.
const maxSettle = 5 * time.Minute

// waiting reads ?settle, a duration or seconds, or else what Prefer says.
func (q *request) waiting() (w waitOptions, p *Problem) {
	w.preferences, w.began = preferred(q.r), time.Now()
	text := q.query.Get("settle")
	if text == "" {
		w.settle = w.wait
		return w, nil
	}
	d, ok := streams.ParseWait(text)
	if !ok {
		return w, invalid("query.settle", "must be a duration such as 30s")
	}
	w.settle, w.waits = min(d, maxSettle), false
	return w, nil
}

// not reports that nothing is waited for but that the command is stored.
func (w waitOptions) not() bool { return w.waits && w.wait == 0 || w.async && !w.waits }

// storedWithin is how long a command may take until it is known to be stored, however short the wait that is preferred.
const storedWithin = 2 * time.Second

// preferred is how long the sender prefers to wait for the answer of the engine; 0 is as long as any.
func (w waitOptions) preferred() time.Duration {
	if w.waits {
		return max(w.wait, storedWithin)
	}
	return 0
}

func header(name, doc string, example any) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: doc, Example: example, Schema: &huma.Schema{Type: huma.TypeString}}
}

func query(name, doc string, schema *huma.Schema) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: doc, Schema: schema}
}

func text(most int) *huma.Schema { return &huma.Schema{Type: huma.TypeString, MaxLength: &most} }

func number(least float64) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least}
}

func instant() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "date-time"} }

func boolean() *huma.Schema { return &huma.Schema{Type: huma.TypeBoolean} }

// namespaceParam is on every operation that is about entities.
func namespaceParam() *huma.Param {
	p := query("namespace", "The namespace; that of the token, or default", text(63))
	p.Example = "default"
	return p
}
