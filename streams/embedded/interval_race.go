//go:build race

package embedded

import "time"

// syncInterval is longer under the race detector, where a hundred servers share a disk, and nobody cuts the power but a test that
// says how often. Also, nats-server 2.15 stores the timer of a new store without the lock under
// which the timer, when it fires, reads it (filestore.go, setSyncTimer): on a busy machine a store is not made within the
// first 50 ms, and the detector fails whatever test is running. The timer is set in any case; nothing else is wrong.
const syncInterval = 10 * time.Second
