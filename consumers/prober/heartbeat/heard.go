package heartbeat

import (
	"strings"
	"time"
)

// mostHeard is how many instances one answer names; with the longest ids it is as large as a message of NATS may be.
const mostHeard = 10000

// Heard are the instances of a service by their ids, with how long ago each was heard, in milliseconds. One that was not heard since its owner looks after it is not among them.
type Heard map[string]int64

// Add notes when an instance, <namespace>.<service>.<id>, was heard; 0 is never. Of more than mostHeard, those that come later are left out.
func (h Heard) Add(key string, at, now time.Duration) {
	if at != 0 && len(h) < mostHeard {
		h[key[strings.LastIndexByte(key, '.')+1:]] = (now - at).Milliseconds()
	}
}
