//go:build !race

package embedded

import "time"

// syncInterval is how often the streams are synced under [Interval].
const syncInterval = 100 * time.Millisecond
