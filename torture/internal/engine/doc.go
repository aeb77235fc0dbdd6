// Package engine tortures one server, or two on a NATS server of its own: kills at any moment and at each line of the commit protocol, broken
// connections, full disks, lost power, clocks that jump, forged and repeated messages; and one that is left alone.
package engine
