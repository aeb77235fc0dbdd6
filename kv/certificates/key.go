package certificates

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

const (
	files = "file" // before the keys of values
	locks = "lock" // before those of locks

	// maxKey is how long a key of the bucket may get. A server cuts off the client whose subject does not fit into a line of its protocol, 4 KiB.
	maxKey = 2048
)

// cleaned is a path without empty parts, which say nothing.
func cleaned(path string) string { return strings.Join(parts(path), "/") }

func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// encode makes a key of the bucket of a path: a token for each part, so that a folder is a wildcard. What tokens cannot have, and '=', is "=XX".
// No two paths have the same key, but for their empty parts.
func encode(kind, path string) (string, error) {
	var b strings.Builder
	b.WriteString(kind)
	for _, part := range parts(path) {
		b.WriteByte('.')
		for i := range len(part) {
			if c := part[i]; plain(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "=%02X", c)
			}
		}
	}
	switch {
	case b.Len() == len(kind):
		return "", errors.New("a name is needed")
	case b.Len() > maxKey:
		return "", fmt.Errorf("the name is too long: it takes %d bytes in the bucket, and may take %d", b.Len(), maxKey)
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

// decode is the path of tokens that encode has made, or false for others.
func decode(tokens string) (path string, ok bool) {
	parts := strings.Split(tokens, ".")
	for i, token := range parts {
		text, rest, escaped := strings.Cut(token, "=")
		for escaped {
			if len(rest) < 2 {
				return "", false
			}
			c, err := hex.DecodeString(rest[:2])
			if err != nil {
				return "", false
			}
			var more string
			more, rest, escaped = strings.Cut(rest[2:], "=")
			text += string(c) + more
		}
		parts[i] = text
	}
	return strings.Join(parts, "/"), true
}
