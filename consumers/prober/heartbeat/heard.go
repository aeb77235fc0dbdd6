package heartbeat

import (
	"strings"
	"time"
)

// mostAsked is of how many instances one question may be.
const mostAsked = 500

// Heard are instances of a service by their ids, with how long ago each was heard, in milliseconds. One that was not heard since its owner looks after it is not among them.
type Heard map[string]int64

// Question is which instances are asked about: the ids of some of one service, <namespace>.<service>. On the wire they are words with spaces between them.
func Question(question string) (service string, ids []string) {
	words := strings.Fields(question)
	if len(words) == 0 {
		return "", nil
	}
	return words[0], words[1:min(len(words), mostAsked+1)]
}

// Add notes when an instance was heard; 0 is never.
func (h Heard) Add(id string, at, now time.Duration) {
	if at != 0 {
		h[id] = (now - at).Milliseconds()
	}
}
