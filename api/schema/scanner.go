package schema

// The pass over the bytes of a body that most of them take. compiled.members starts it with a compiled schema; it checks syntax,
// types and bounds at once, and returns the members of the object without blanks. It accepts only what it is sure of (ASCII
// without escapes, short whole numbers, exact names); after a false, Validator.Check decodes the body and has huma decide.

import "bytes"

// scanner is one pass over a body.
type scanner struct {
	in      []byte
	i       int
	out     []byte // what was seen, without blanks; it never grows beyond what it was made for
	members []Member
}

func (s *scanner) space() {
	for s.i < len(s.in) && (s.in[s.i] == ' ' || s.in[s.i] == '\n' || s.in[s.i] == '\t' || s.in[s.i] == '\r') {
		s.i++
	}
}

// next takes a byte, if it is the next one that is not blank.
func (s *scanner) next(c byte) bool {
	s.space()
	if s.i >= len(s.in) || s.in[s.i] != c {
		return false
	}
	s.i++
	s.out = append(s.out, c)
	return true
}

func (s *scanner) value(c *compiled) bool {
	if c == nil {
		return false
	}
	switch s.space(); c.kind {
	case kindObject:
		return s.object(c, false)
	case kindArray:
		return s.array(c)
	case kindText:
		v, ok := s.text()
		return ok && len(v) >= c.least && len(v) <= c.most && (c.enum == nil || within(c.enum, v)) && (c.pattern == nil || c.pattern.Match(v))
	case kindNumber:
		n, ok := s.number()
		return ok && n >= c.min && n <= c.max
	default:
		return s.literal("true") || s.literal("false")
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

func (s *scanner) object(c *compiled, whole bool) bool {
	if !s.next('{') {
		return false
	}
	seen := uint64(0)
	for n := 0; !s.next('}'); n++ {
		if n >= c.most || n > 0 && !s.next(',') {
			return false
		}
		s.space()
		name, ok := s.text()
		if !ok || !s.next(':') {
			return false
		}
		of := c.each
		if f := c.fields[string(name)]; f != nil {
			if of = f.compiled; seen&f.bit != 0 {
				return false
			}
			seen |= f.bit
		} else if len(c.fields) > 0 {
			return false // it may differ from one of them in case only
		}
		start := len(s.out)
		if !s.value(of) {
			return false
		}
		if whole {
			s.members = append(s.members, Member{name, s.out[start:]})
		}
	}
	return seen&c.required == c.required
}

func (s *scanner) array(c *compiled) bool {
	if !s.next('[') {
		return false
	}
	for n := 0; !s.next(']'); n++ {
		if n >= c.most || n > 0 && !s.next(',') || !s.value(c.each) {
			return false
		}
	}
	return true
}

// text reads a string without escapes, of ASCII that stands for itself wherever JSON is written.
func (s *scanner) text() ([]byte, bool) {
	if s.i >= len(s.in) || s.in[s.i] != '"' {
		return nil, false
	}
	n := bytes.IndexByte(s.in[s.i+1:], '"')
	if n < 0 {
		return nil, false
	}
	v := s.in[s.i+1 : s.i+1+n]
	for _, b := range v {
		if b < ' ' || b >= 0x7f || b == '\\' || b == '<' || b == '>' || b == '&' {
			return nil, false
		}
	}
	s.out = append(s.out, s.in[s.i:s.i+n+2]...)
	s.i += n + 2
	return v, true
}

// number reads a whole number of up to 15 digits.
func (s *scanner) number() (n int64, ok bool) {
	start, sign := s.i, int64(1)
	if s.i < len(s.in) && s.in[s.i] == '-' {
		s.i++
		sign = -1
	}
	first := s.i
	for s.i < len(s.in) && s.in[s.i] >= '0' && s.in[s.i] <= '9' {
		n = n*10 + int64(s.in[s.i]-'0')
		if s.i++; s.i-first > 15 {
			return 0, false
		}
	}
	if s.i == first || s.in[first] == '0' && (s.i > first+1 || sign < 0) || s.i < len(s.in) && (s.in[s.i] == '.' || s.in[s.i] == 'e' || s.in[s.i] == 'E') {
		return 0, false
	}
	s.out = append(s.out, s.in[start:s.i]...)
	return sign * n, true
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.in[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	s.out = append(s.out, word...)
	return true
}
