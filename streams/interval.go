//go:build !race

package streams

import "time"

// syncInterval is how often the server syncs each stream under [Interval] where there is no barrier.
const syncInterval = 100 * time.Millisecond
