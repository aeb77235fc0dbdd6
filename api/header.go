package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
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

// unchanged reports whether If-None-Match names the revision; the comparison is weak, as it must be.
func unchanged(r *http.Request, revision uint64) bool {
	lines := r.Header["If-None-Match"]
	if len(lines) == 0 {
		return false
	}
	list, all, ok := tags(lines)
	if !ok {
		return false // a condition that cannot be read is none
	}
	want := strconv.FormatUint(revision, 10)
	for _, t := range list {
		all = all || t.value == want
	}
	return all
}

// respondAsync reports whether Prefer (RFC 7240) asks not to wait.
func respondAsync(r *http.Request) bool {
	for _, line := range r.Header["Prefer"] {
		for _, pref := range strings.Split(line, ",") {
			name, _, _ := strings.Cut(pref, ";")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
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

// maxSettle is how long a request may wait for an entity to settle.
const maxSettle = 5 * time.Minute

// settle reads how long to wait for the entity to leave its transitional state: a duration, or seconds.
func (q *request) settle() (time.Duration, *Problem) {
	text := q.query.Get("settle")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if n, err2 := strconv.ParseUint(text, 10, 32); err2 == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, invalid("query.settle", "must be a duration such as 30s")
	}
	return min(d, maxSettle), nil
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
