// Package jsonscan walks over JSON and checks it as strictly as encoding/json. Values are parts of the input: nothing is allocated for members that nobody reads.
package jsonscan

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

var errSyntax = errors.New("invalid JSON")

// Object calls member for each member of an object, with its decoded name and the bytes of its value, without surrounding space, and ends with its first error. An error
// says at which byte.
func Object(b []byte, member func(name, value []byte) error) error {
	s := scanner{b: b}
	err := s.object(member)
	if err == nil {
		if s.peek(); s.i != len(s.b) {
			err = errSyntax
		}
	}
	if err != nil {
		return fmt.Errorf("%w at byte %d", err, s.i)
	}
	return nil
}

// Unquote decodes a valid string.
func Unquote(b []byte) (string, error) {
	inner := b[1 : len(b)-1]
	plain := utf8.Valid(inner)
	for i := 0; plain && i < len(inner); i++ {
		plain = inner[i] != '\\'
	}
	if plain {
		return string(inner), nil
	}
	var v string
	err := json.Unmarshal(b, &v)
	return v, err
}

// depthLimit is that of encoding/json.
const depthLimit = 10000

// scanner walks over JSON, checks it and decodes nothing.
type scanner struct {
	b []byte
	i int
}

// peek is the next byte that is not white space, or 0.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		if c := s.b[s.i]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (s *scanner) object(member func(name, value []byte) error) error {
	if s.peek() != '{' {
		return errSyntax
	}
	s.i++
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for {
		name, err := s.name()
		if err != nil {
			return err
		}
		c := s.peek()
		start := s.i
		if err := s.skip(c, 1); err != nil {
			return err
		}
		if err := member(name, s.b[start:s.i]); err != nil {
			return err
		}
		if c = s.peek(); c != ',' && c != '}' {
			return errSyntax
		}
		if s.i++; c == '}' {
			return nil
		}
	}
}

// name takes a member's name and the colon, and returns the name decoded.
func (s *scanner) name() ([]byte, error) {
	if s.peek() != '"' {
		return nil, errSyntax
	}
	start := s.i
	plain, err := s.str()
	if err != nil {
		return nil, err
	}
	name := s.b[start+1 : s.i-1]
	if !plain {
		v, err := Unquote(s.b[start:s.i])
		if err != nil {
			return nil, err
		}
		name = []byte(v)
	}
	if s.peek() != ':' {
		return nil, errSyntax
	}
	s.i++
	return name, nil
}

// skip goes behind a value that begins with c and stands inside depth brackets.
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
	shut := open + 2 // ']' and '}' in ASCII
	s.i++
	if s.peek() == shut {
		s.i++
		return nil
	}
	for {
		if open == '{' {
			if _, err := s.name(); err != nil {
				return err
			}
		}
		if err := s.skip(s.peek(), depth); err != nil {
			return err
		}
		c := s.peek()
		if c != ',' && c != shut {
			return errSyntax
		}
		if s.i++; c == shut {
			return nil
		}
	}
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
	b := s.b
	for i := s.i + 1; i < len(b); i++ {
		c := b[i]
		if !special[c] {
			continue
		}
		switch {
		case c == '"':
			s.i = i + 1
			return plain, nil
		case c == '\\':
			plain, s.i = false, i
			if err := s.escape(); err != nil {
				return false, err
			}
			i = s.i
		case c < ' ':
			s.i = i
			return false, errSyntax
		default:
			plain = false
		}
	}
	s.i = len(b)
	return false, errSyntax
}

// special are the bytes of a string that are not plain.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c >= 0x80 || c == '"' || c == '\\'
	}
	return t
}()

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
