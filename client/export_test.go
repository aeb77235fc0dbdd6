package client

import (
	"net/http"
	"time"
)

// Bound sets how many services are followed, and when one that nobody calls is let go. It is called before the first
// request.
func (t *Transport) Bound(most int, idle time.Duration) {
	t.services.most, t.services.idle = most, idle
}

// Followed are the services that are followed.
func (t *Transport) Followed() int {
	t.services.mu.Lock()
	defer t.services.mu.Unlock()
	return len(t.services.known)
}

// HTTPClient is the one that is used.
func (c *Client) HTTPClient() *http.Client { return c.http() }
