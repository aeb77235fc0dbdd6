package kv

import "errors"

var errSyntax = errors.New("invalid JSON")

// depthLimit is that of encoding/json.
const depthLimit = 10000

// scanner walks over JSON, checks it and decodes nothing.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek is the next byte that is not white space, or 0.
func (s *scanner) peek() byte {
	s.space()
	if s.i == len(s.b) {
		return 0
	}
	return s.b[s.i]
}

func (s *scanner) end() error {
	if s.space(); s.i != len(s.b) {
		return errSyntax
	}
	return nil
}

// object calls member for each member with its decoded name, standing before its value, which member must take.
func (s *scanner) object(member func(name []byte) error) error {
	return s.list('{', '}', func() error {
		if s.peek() != '"' {
			return errSyntax
		}
		start := s.i
		plain, err := s.str()
		if err != nil {
			return err
		}
		name := s.b[start+1 : s.i-1]
		if !plain {
			v, err := unquote(s.b[start:s.i])
			if err != nil {
				return err
			}
			name = []byte(v)
		}
		if s.peek() != ':' {
			return errSyntax
		}
		s.i++
		return member(name)
	})
}

// list takes elements between two brackets, separated by commas.
func (s *scanner) list(open, shut byte, element func() error) error {
	if s.peek() != open {
		return errSyntax
	}
	s.i++
	if s.peek() == shut {
		s.i++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.i++
		case shut:
			s.i++
			return nil
		default:
			return errSyntax
		}
	}
}

// value takes one value that stands inside depth brackets, and returns its bytes without surrounding space.
func (s *scanner) value(depth int) ([]byte, error) {
	c := s.peek()
	start := s.i
	err := s.skip(c, depth)
	return s.b[start:s.i], err
}

func (s *scanner) skip(c byte, depth int) (err error) {
	switch {
	case c == '"':
		_, err = s.str()
	case c == '{' || c == '[':
		err = s.nested(c, depth+1)
	case c == 't':
		err = s.word("true")
	case c == 'f':
		err = s.word("false")
	case c == 'n':
		err = s.word("null")
	default:
		err = s.number()
	}
	return err
}

func (s *scanner) nested(open byte, depth int) error {
	if depth > depthLimit {
		return errors.New("nested too deeply")
	}
	if open == '[' {
		return s.list('[', ']', func() error { return s.skip(s.peek(), depth) })
	}
	return s.list('{', '}', func() error {
		if s.peek() != '"' {
			return errSyntax
		}
		if _, err := s.str(); err != nil {
			return err
		}
		if s.peek() != ':' {
			return errSyntax
		}
		s.i++
		return s.skip(s.peek(), depth)
	})
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		return errSyntax
	}
	s.i += len(w)
	return nil
}

// str takes a string that begins here; plain says that it is ASCII without escapes.
func (s *scanner) str() (plain bool, err error) {
	plain = true
	for s.i++; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return plain, nil
		case c == '\\':
			plain = false
			if err := s.escape(); err != nil {
				return false, err
			}
		case c < ' ':
			return false, errSyntax
		case c >= 0x80:
			plain = false
		}
	}
	return false, errSyntax
}

// escape stands on a backslash and leaves the scanner on the escape's last byte.
func (s *scanner) escape() error {
	if s.i++; s.i >= len(s.b) {
		return errSyntax
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return nil
	case 'u':
		for range 4 {
			if s.i++; s.i >= len(s.b) || !hex(s.b[s.i]) {
				return errSyntax
			}
		}
		return nil
	}
	return errSyntax
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) number() error {
	if s.at('-') {
		s.i++
	}
	if s.at('0') {
		s.i++
	} else if !s.digits() {
		return errSyntax
	}
	if s.at('.') {
		if s.i++; !s.digits() {
			return errSyntax
		}
	}
	if s.at('e') || s.at('E') {
		if s.i++; s.at('+') || s.at('-') {
			s.i++
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

func (s *scanner) at(c byte) bool { return s.i < len(s.b) && s.b[s.i] == c }

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}
