package schema

import (
	"math"
	"regexp"
	"slices"

	"github.com/danielgtaylor/huma/v2"
)

// compiled is a schema made ready to check bodies as they are sent, without decoding them. It accepts what most bodies look
// like and knows nothing of the rest: the schema itself then decides, and names what is wrong. What is accepted here is
// accepted by the schema and by encoding/json as well.
type compiled struct {
	kind     byte
	fields   map[string]*field // of an object
	required uint64            // of which these must be there
	each     *compiled         // of the other members of an object, or the items of an array; nil allows none
	most     int               // members or items
	least    int               // of a text, in bytes, as those of most
	enum     []string
	pattern  *regexp.Regexp
	min, max int64
}

type field struct {
	*compiled
	bit uint64
}

const (
	kindObject = 'o'
	kindArray  = 'a'
	kindText   = 's'
	kindNumber = 'n'
	kindBool   = 'b'
)

// maxCompiled is how deep a schema may be; only one that holds itself is deeper.
const maxCompiled = 16

// compile returns nil for a schema with rules that are not known here.
func compile(r huma.Registry, s *huma.Schema, depth int) *compiled {
	for s != nil && s.Ref != "" {
		s = r.SchemaFromRef(s.Ref)
	}
	if s == nil || depth > maxCompiled || s.OneOf != nil || s.AnyOf != nil || s.AllOf != nil || s.Not != nil || s.Const != nil || s.Format != "" && s.Type == huma.TypeString ||
		s.ContentEncoding != "" || s.UniqueItems || s.MinItems != nil || s.MinProperties != nil || s.MultipleOf != nil || s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil ||
		len(s.DependentRequired) > 0 || s.ReadOnly || s.WriteOnly || s.Type != huma.TypeString && len(s.Enum) > 0 {
		return nil
	}
	c := &compiled{most: math.MaxInt, min: -1 << 53, max: 1 << 53}
	switch s.Type {
	case huma.TypeObject:
		return c.object(r, s, depth)
	case huma.TypeArray:
		c.kind, c.most, c.each = kindArray, bound(s.MaxItems), compile(r, s.Items, depth+1)
		if c.each == nil {
			return nil
		}
	case huma.TypeString:
		c.kind, c.most = kindText, bound(s.MaxLength)
		if s.MinLength != nil {
			c.least = *s.MinLength
		}
		for _, e := range s.Enum {
			text, ok := e.(string)
			if !ok {
				return nil
			}
			c.enum = append(c.enum, text)
		}
		if s.Pattern != "" {
			var err error
			if c.pattern, err = regexp.Compile(s.Pattern); err != nil {
				return nil
			}
		}
	case huma.TypeInteger, huma.TypeNumber:
		if c.kind = kindNumber; s.Format != "" && s.Format != "int64" && s.Format != "double" {
			return nil // it has less room
		}
		if s.Minimum != nil {
			c.min = int64(math.Ceil(*s.Minimum))
		}
		if s.Maximum != nil {
			c.max = int64(math.Floor(min(*s.Maximum, 1<<53)))
		}
	case huma.TypeBoolean:
		c.kind = kindBool
	default:
		return nil
	}
	return c
}

func (c *compiled) object(r huma.Registry, s *huma.Schema, depth int) *compiled {
	c.kind, c.most, c.fields = kindObject, bound(s.MaxProperties), map[string]*field{}
	if len(s.Properties) > 64 {
		return nil
	}
	if more, ok := s.AdditionalProperties.(*huma.Schema); ok {
		if c.each = compile(r, more, depth+1); c.each == nil {
			return nil
		}
	}
	for name, p := range s.Properties {
		bit := uint64(1) << len(c.fields)
		c.fields[name] = &field{compile(r, p, depth+1), bit} // one that cannot be compiled is left to the schema
		if slices.Contains(s.Required, name) {
			c.required |= bit
		}
	}
	return c
}

func bound(n *int) int {
	if n == nil {
		return math.MaxInt
	}
	return *n
}

// Member is a member of an object: its name, and its value without blanks.
type Member struct{ Name, Value []byte }

// members checks a whole body that is an object and returns its members in the order in which they stand.
func (c *compiled) members(body []byte) ([]Member, bool) {
	if c == nil || c.kind != kindObject {
		return nil, false
	}
	s := scanner{in: body, out: make([]byte, 0, len(body)), members: make([]Member, 0, 8)}
	ok := s.object(c, true)
	s.space()
	return s.members, ok && s.i == len(body)
}
