// Package retry bounds what a client sends again: how long one try may take, how many retries a service may have, and the pause
// before each.
package retry
