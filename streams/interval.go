//go:build !race

package streams

import "time"

// syncInterval is what a power loss may cost under [Interval].
const syncInterval = 100 * time.Millisecond
