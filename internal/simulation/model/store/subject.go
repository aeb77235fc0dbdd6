package store

import "strings"

// Subjects and filters, as NATS has them: tokens between dots, * for one token, > for the rest.

// Wild reports whether a subject has a token that stands for others.
func Wild(s string) bool {
	for t := range strings.SplitSeq(s, ".") {
		if t == "*" || t == ">" {
			return true
		}
	}
	return false
}

// Valid reports whether a subject or filter is one: no token is empty, and > is the last.
func Valid(s string) bool {
	if s == "" || strings.ContainsAny(s, " \t\n\r\f") {
		return false
	}
	rest := false
	for t := range strings.SplitSeq(s, ".") {
		if t == "" || rest {
			return false
		}
		rest = t == ">"
	}
	return true
}

// cutToken splits off the first token.
func cutToken(s string) (token, rest string, more bool) {
	if i := strings.IndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// Match reports whether a subject without wildcards, or with them as tokens of its own, lies under a filter.
func Match(filter, subject string) bool {
	for {
		f, frest, fmore := cutToken(filter)
		if f == ">" {
			return subject != ""
		}
		t, trest, tmore := cutToken(subject)
		if f != t && f != "*" || f == "*" && t == ">" {
			return false
		}
		if !fmore || !tmore {
			return fmore == tmore
		}
		filter, subject = frest, trest
	}
}

// Collide reports whether some subject lies under both filters.
func Collide(a, b string) bool {
	for {
		x, xrest, xmore := cutToken(a)
		y, yrest, ymore := cutToken(b)
		if x == ">" || y == ">" {
			return true
		}
		if x != y && x != "*" && y != "*" {
			return false
		}
		if !xmore || !ymore {
			return xmore == ymore
		}
		a, b = xrest, yrest
	}
}

// token is the n-th token of a subject, from 1; empty where it has fewer.
func token(s string, n int) string {
	for ; n > 1; n-- {
		_, rest, more := cutToken(s)
		if !more {
			return ""
		}
		s = rest
	}
	t, _, _ := cutToken(s)
	return t
}

// ValidName reports whether a name may be that of a stream or consumer.
func ValidName(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\r\n\f.*>\\/")
}

// MatchAny reports whether a subject lies under one of the filters; none is all.
func MatchAny(filters []string, subject string) bool {
	for _, f := range filters {
		if f == subject || Match(f, subject) {
			return true
		}
	}
	return len(filters) == 0
}
