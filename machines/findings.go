package machines

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	labelSpace = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

// IsLabel reports whether a text is a DNS label (RFC 1123, 2.1), as names and namespaces are.
func IsLabel(s string) bool { return dnsLabel.MatchString(s) }

// Findings collect what is wrong with a body, for its [Validator].
type Findings struct {
	Under  string // goes before the names of fields that are added, such as "check."
	fields []FieldError
}

// Add notes what is wrong with a field.
func (f *Findings) Add(field, format string, args ...any) {
	f.fields = append(f.fields, FieldError{Field: f.Under + field, Message: fmt.Sprintf(format, args...)})
}

// Between notes a number that is not from low to high, both included.
func (f *Findings) Between(field string, v, low, high int) {
	if v < low || v > high {
		f.Add(field, "must be from %d to %d", low, high)
	}
}

// Labels notes more labels than most, and those that do not follow the syntax of Kubernetes: [prefix/]name, at most 63
// characters of name and of value.
func (f *Findings) Labels(labels map[string]string, most int) {
	if len(labels) > most {
		f.Add("labels", "has more than %d labels", most)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			name = key
		}
		if !labelName.MatchString(name) || prefixed && (len(prefix) > 253 || !labelSpace.MatchString(prefix)) {
			f.Add("labels", "%q is not a Kubernetes label key", key)
		}
		if v := labels[key]; v != "" && !labelName.MatchString(v) {
			f.Add("labels."+key, "is not a Kubernetes label value")
		}
	}
}

// Refusal is nil when nothing is wrong, and else one with [CodeValidation] and a [FieldError] for each finding, in their order.
func (f *Findings) Refusal() *Refusal {
	if len(f.fields) == 0 {
		return nil
	}
	return Invalid(f.fields...)
}
