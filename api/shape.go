package api

import (
	"bytes"
	"math"
	"regexp"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// shape is a schema made ready to check bodies as they are sent, without decoding them. It takes what most bodies look
// like and says of the rest only that it does not know: the schema itself then decides, and names what is wrong. What a
// shape takes, its schema and encoding/json take, too.
type shape struct {
	kind     byte
	fields   map[string]*field // of an object
	required uint64            // of which these must be there
	each     *shape            // of the other members of an object, or the items of an array; nil allows none
	most     int               // members or items
	least    int               // of a text, in bytes, as those of most
	enum     []string
	pattern  *regexp.Regexp
	min, max int64
}

type field struct {
	*shape
	bit uint64
}

const (
	anObject = 'o'
	anArray  = 'a'
	aText    = 's'
	aNumber  = 'n'
	aBool    = 'b'
)

// maxShapes is how deep a schema may be; only one that holds itself is deeper.
const maxShapes = 16

// newShape returns nil for a schema with rules that a shape does not know.
func newShape(r huma.Registry, s *huma.Schema, depth int) *shape {
	for s != nil && s.Ref != "" {
		s = r.SchemaFromRef(s.Ref)
	}
	if s == nil || depth > maxShapes || s.OneOf != nil || s.AnyOf != nil || s.AllOf != nil || s.Not != nil || s.Const != nil || s.Format != "" && s.Type == huma.TypeString ||
		s.ContentEncoding != "" || s.UniqueItems || s.MinItems != nil || s.MinProperties != nil || s.MultipleOf != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil ||
		len(s.DependentRequired) > 0 || s.ReadOnly || s.WriteOnly || s.Type != huma.TypeString && len(s.Enum) > 0 {
		return nil
	}
	sh := &shape{most: math.MaxInt, min: -1 << 53, max: 1 << 53}
	switch s.Type {
	case huma.TypeObject:
		return sh.object(r, s, depth)
	case huma.TypeArray:
		sh.kind, sh.most, sh.each = anArray, bound(s.MaxItems), newShape(r, s.Items, depth+1)
		if sh.each == nil {
			return nil
		}
	case huma.TypeString:
		sh.kind, sh.most = aText, bound(s.MaxLength)
		if s.MinLength != nil {
			sh.least = *s.MinLength
		}
		for _, e := range s.Enum {
			text, ok := e.(string)
			if !ok {
				return nil
			}
			sh.enum = append(sh.enum, text)
		}
		if s.Pattern != "" {
			var err error
			if sh.pattern, err = regexp.Compile(s.Pattern); err != nil {
				return nil
			}
		}
	case huma.TypeInteger, huma.TypeNumber:
		if sh.kind = aNumber; s.Format != "" && s.Format != "int64" && s.Format != "double" {
			return nil // it has less room
		}
		if s.Minimum != nil {
			sh.min = int64(math.Ceil(*s.Minimum))
		}
		if s.Maximum != nil {
			sh.max = int64(math.Floor(min(*s.Maximum, 1<<53)))
		}
	case huma.TypeBoolean:
		sh.kind = aBool
	default:
		return nil
	}
	return sh
}

func (sh *shape) object(r huma.Registry, s *huma.Schema, depth int) *shape {
	sh.kind, sh.most, sh.fields = anObject, bound(s.MaxProperties), map[string]*field{}
	if len(s.Properties) > 64 {
		return nil
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		if sh.each = newShape(r, more, depth+1); sh.each == nil {
			return nil
		}
	}
	for name, p := range s.Properties {
		bit := uint64(1) << len(sh.fields)
		sh.fields[name] = &field{newShape(r, p, depth+1), bit} // one without a shape is left to the schema
		if slices.Contains(s.Required, name) {
			sh.required |= bit
		}
	}
	return sh
}

func bound(n *int) int {
	if n == nil {
		return math.MaxInt
	}
	return *n
}

// part is a member of an object: its name and its value, without blanks.
type part struct{ name, value []byte }

// shape is the one of a schema; nil is that of one which has none.
func (s *Server) shape(schema *huma.Schema) *shape {
	if sh, ok := s.shapes.Load(schema); ok {
		return sh.(*shape)
	}
	sh := newShape(s.registry(), schema, 0)
	s.shapes.Store(schema, sh)
	return sh
}

// parts checks a whole body that is an object and returns its members in the order in which they stand.
func (sh *shape) parts(body []byte) ([]part, bool) {
	if sh == nil || sh.kind != anObject {
		return nil, false
	}
	w := walk{in: body, out: make([]byte, 0, len(body)), parts: make([]part, 0, 8)}
	ok := w.object(sh, true)
	w.blank()
	return w.parts, ok && w.i == len(body)
}

// takes reports whether a body is known to be right.
func (sh *shape) takes(body []byte) bool {
	_, ok := sh.parts(body)
	return ok
}

// walk is one look at a body.
type walk struct {
	in    []byte
	i     int
	out   []byte // what was seen, without blanks; it never grows beyond what it was made for
	parts []part
}

func (w *walk) blank() {
	for w.i < len(w.in) && (w.in[w.i] == ' ' || w.in[w.i] == '\n' || w.in[w.i] == '\t' || w.in[w.i] == '\r') {
		w.i++
	}
}

// take goes behind a byte, if it is the next one that is not blank.
func (w *walk) take(c byte) bool {
	w.blank()
	if w.i >= len(w.in) || w.in[w.i] != c {
		return false
	}
	w.i++
	w.out = append(w.out, c)
	return true
}

func (w *walk) value(sh *shape) bool {
	if sh == nil {
		return false
	}
	switch w.blank(); sh.kind {
	case anObject:
		return w.object(sh, false)
	case anArray:
		return w.array(sh)
	case aText:
		v, ok := w.text()
		return ok && len(v) >= sh.least && len(v) <= sh.most && (sh.enum == nil || within(sh.enum, v)) && (sh.pattern == nil || sh.pattern.Match(v))
	case aNumber:
		n, ok := w.number()
		return ok && n >= sh.min && n <= sh.max
	default:
		return w.word("true") || w.word("false")
	}
}

func within(list []string, v []byte) bool {
	for _, s := range list {
		if s == string(v) {
			return true
		}
	}
	return false
}

func (w *walk) object(sh *shape, whole bool) bool {
	if !w.take('{') {
		return false
	}
	seen := uint64(0)
	for n := 0; !w.take('}'); n++ {
		if n >= sh.most || n > 0 && !w.take(',') {
			return false
		}
		w.blank()
		name, ok := w.text()
		if !ok || !w.take(':') {
			return false
		}
		of := sh.each
		if f := sh.fields[string(name)]; f != nil {
			if of = f.shape; seen&f.bit != 0 {
				return false
			}
			seen |= f.bit
		} else if len(sh.fields) > 0 {
			return false // it may be one of them in other letters
		}
		start := len(w.out)
		if !w.value(of) {
			return false
		}
		if whole {
			w.parts = append(w.parts, part{name, w.out[start:]})
		}
	}
	return seen&sh.required == sh.required
}

func (w *walk) array(sh *shape) bool {
	if !w.take('[') {
		return false
	}
	for n := 0; !w.take(']'); n++ {
		if n >= sh.most || n > 0 && !w.take(',') || !w.value(sh.each) {
			return false
		}
	}
	return true
}

// text takes a text without escapes, of ASCII that stands for itself wherever JSON is written.
func (w *walk) text() ([]byte, bool) {
	if w.i >= len(w.in) || w.in[w.i] != '"' {
		return nil, false
	}
	n := bytes.IndexByte(w.in[w.i+1:], '"')
	if n < 0 {
		return nil, false
	}
	v := w.in[w.i+1 : w.i+1+n]
	for _, c := range v {
		if c < ' ' || c >= 0x7f || c == '\\' || c == '<' || c == '>' || c == '&' {
			return nil, false
		}
	}
	w.out = append(w.out, w.in[w.i:w.i+n+2]...)
	w.i += n + 2
	return v, true
}

// number takes a whole number of up to 15 digits.
func (w *walk) number() (n int64, ok bool) {
	start, sign := w.i, int64(1)
	if w.i < len(w.in) && w.in[w.i] == '-' {
		w.i++
		sign = -1
	}
	first := w.i
	for w.i < len(w.in) && w.in[w.i] >= '0' && w.in[w.i] <= '9' {
		n = n*10 + int64(w.in[w.i]-'0')
		if w.i++; w.i-first > 15 {
			return 0, false
		}
	}
	if w.i == first || w.in[first] == '0' && (w.i > first+1 || sign < 0) || w.i < len(w.in) && (w.in[w.i] == '.' || w.in[w.i] == 'e' || w.in[w.i] == 'E') {
		return 0, false
	}
	w.out = append(w.out, w.in[start:w.i]...)
	return sign * n, true
}

func (w *walk) word(s string) bool {
	if !bytes.HasPrefix(w.in[w.i:], []byte(s)) {
		return false
	}
	w.i += len(s)
	w.out = append(w.out, s...)
	return true
}
