// Package schema checks JSON bodies against the schemas of an OpenAPI document. Most bodies are checked in one pass over their
// bytes (compiled.go, scanner.go); what that pass does not know is decoded and left to huma, which names every wrong place.
package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
)

// Names of members are exact: what encoding/json forgives, huma would otherwise forgive, too.
func init() { huma.ValidateStrictCasing = true }

// MaxDepth is how deep a body may be nested.
const MaxDepth = 64

// What is wrong with a body before its schema is asked. Each text completes "the body ...".
var (
	ErrDepth  = errors.New("is nested too deeply")
	ErrSyntax = errors.New("is not JSON")
	ErrNumber = errors.New("has a number that is too large")
)

// Detail points at one wrong value.
type Detail struct {
	Location string `json:"location" example:"body.spec.image" doc:"Location: body, path, query or header, and the path from there"`
	Message  string `json:"message"`
}

// Validator checks values against the schemas of one registry. It may be used by several goroutines.
type Validator struct {
	registry huma.Registry
	compiled sync.Map // *compiled by *huma.Schema, of those that were asked for
}

// New makes a validator; schemas may be added to the registry later.
func New(registry huma.Registry) *Validator { return &Validator{registry: registry} }

// Check checks a body as it was sent, and names up to 100 wrong places below location. The error is [ErrDepth], [ErrSyntax],
// [ErrNumber] or nil.
func (v *Validator) Check(s *huma.Schema, location string, raw []byte) ([]Detail, error) {
	if _, ok := v.Members(s, raw); ok {
		return nil, nil
	}
	if Depth(raw) > MaxDepth {
		return nil, ErrDepth
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) {
			return nil, ErrNumber
		}
		return nil, ErrSyntax
	}
	return v.Validate(s, location, value), nil
}

// Members are those of a body that is an object and right, in the order in which they stand. It is false also for some bodies
// that are right: [Validator.Check] decides.
func (v *Validator) Members(s *huma.Schema, raw []byte) ([]Member, bool) {
	c, ok := v.compiled.Load(s)
	if !ok {
		c, _ = v.compiled.LoadOrStore(s, compile(v.registry, s, 0))
	}
	return c.(*compiled).members(raw)
}

// Validate checks a decoded value, and names up to 100 wrong places below location. Values are left out of what it says.
func (v *Validator) Validate(s *huma.Schema, location string, value any) []Detail {
	path := huma.NewPathBuffer(make([]byte, 0, 64), 0)
	path.Push(location)
	var res huma.ValidateResult
	huma.Validate(v.registry, s, path, huma.ModeWriteToServer, value, &res)
	var details []Detail
	for _, err := range res.Errors {
		var d *huma.ErrorDetail
		if !errors.As(err, &d) || len(details) == 100 {
			continue
		}
		message := d.Message
		if rule, _, parsed := strings.Cut(message, ": "); parsed && strings.HasPrefix(rule, "expected string to be RFC") {
			message = rule // what follows is a parser's text with the value
		}
		details = append(details, Detail{Clip(d.Location), message})
	}
	return details
}

// Depth is how deep a text is nested, whether it is JSON or not, without decoding it.
func Depth(raw []byte) int {
	most, now, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if now++; now > most {
				most = now
			}
		case c == '}' || c == ']':
			now--
		}
	}
	return most
}

// Clip makes a name that a caller chose fit to be repeated.
func Clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffd {
			return '?'
		}
		return r
	}, s)
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
