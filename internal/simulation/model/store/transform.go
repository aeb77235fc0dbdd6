package store

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// Transform maps subjects under a source to others, with the functions of ADR-30 that the product uses: wildcard and partition.
type Transform struct {
	source, target string
	places         []int // tokens of a subject that stand at the wildcards of the source, from 1
}

// NewTransform is a transform whose target was checked; an empty source is everything.
func NewTransform(source, target string) *Transform {
	if source == "" {
		source = ">"
	}
	t := &Transform{source: source, target: target}
	n := 0
	for tok := range strings.SplitSeq(source, ".") {
		if n++; tok == "*" {
			t.places = append(t.places, n)
		}
	}
	return t
}

// Apply is the subject that another one is mapped to; not ok where the source does not match.
func (t *Transform) Apply(subject string) (string, bool) {
	if !Match(t.source, subject) {
		return "", false
	}
	var b strings.Builder
	b.Grow(len(subject) + 8)
	star := 0
	for rest, more := t.target, true; more; {
		var tok string
		if strings.HasPrefix(rest, "{{") {
			end := strings.Index(rest, "}}")
			tok, rest = rest[:end+2], rest[end+2:]
			rest, more = strings.CutPrefix(rest, ".")
		} else {
			tok, rest, more = cutToken(rest)
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		switch {
		case tok == "*" || strings.HasPrefix(tok, "$") && len(tok) > 1 && tok[1] >= '0' && tok[1] <= '9':
			star++
			b.WriteString(t.wildcard(subject, star))
		case tok == ">":
			b.WriteString(t.tail(subject))
		case strings.HasPrefix(tok, "{{"):
			b.WriteString(t.call(strings.Trim(tok, "{} "), subject))
		default:
			b.WriteString(tok)
		}
	}
	return b.String(), true
}

func (t *Transform) wildcard(subject string, n int) string {
	if n < 1 || n > len(t.places) {
		return ""
	}
	return token(subject, t.places[n-1])
}

// tail is what of a subject lies under the > of the source.
func (t *Transform) tail(subject string) string {
	for range strings.Count(t.source, ".") {
		_, subject, _ = cutToken(subject)
	}
	return subject
}

// call is the value of a function such as wildcard(1) or partition(16,1,2).
func (t *Transform) call(text, subject string) string {
	name, list, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	var args []int
	for a := range strings.SplitSeq(list, ",") {
		n, _ := strconv.Atoi(strings.TrimSpace(a)) // checked when the stream was made
		args = append(args, n)
	}
	if strings.EqualFold(name, "wildcard") {
		return t.wildcard(subject, args[0])
	}
	h := fnv.New32a()
	for _, n := range args[1:] {
		_, _ = h.Write([]byte(t.wildcard(subject, n))) // never fails
	}
	return strconv.FormatUint(uint64(h.Sum32()%uint32(args[0])), 10)
}
