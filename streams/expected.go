package streams

import (
	"slices"
	"strconv"
	"strings"
)

// Expected are the revisions that a sender expects an entity to be at (see [HeaderExpect]): one of a list, or any that there is.
type Expected struct {
	Any       bool
	Revisions []uint64 // 0 is that there is no entity
}

// ParseExpected reads revisions in digits with commas between them, or *. Nothing else is ok, nor is the empty text.
func ParseExpected(text string) (e Expected, ok bool) {
	if text == "*" {
		return Expected{Any: true}, true
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return Expected{}, false
		}
		e.Revisions = append(e.Revisions, n)
	}
	return e, true
}

// Holds reports whether an entity at the revision, 0 when there is none, is as expected.
func (e Expected) Holds(revision uint64) bool {
	return e.Any && revision != 0 || slices.Contains(e.Revisions, revision)
}
