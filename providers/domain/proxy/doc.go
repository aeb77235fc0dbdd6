// Package proxy is the reverse proxy in front of tenants' applications: requests for a host go to its backends.
//
// The contract:
//   - Set replaces the whole table in one step. A request is served by the table that it has begun with. A backend that is in both tables keeps its connections, its health
//     and its requests; one that is in neither, or has weight 0, gets no new ones, and finishes those that it has: [Proxy.Status] tells when.
//   - Requests go to healthy backends in proportion to their weights. One that does not take a connection is left out for a second, and the request goes on to
//     another one, because nothing of it was sent. What was sent is never sent again.
//   - A host that is not in the table is 404, a host without a healthy backend 503, each as problem+json.
//   - What the client says about who it is (Forwarded, X-Forwarded-…, X-Real-Ip) does not reach a backend: it is set anew.
//   - Bodies, trailers, events and upgraded connections (WebSocket) are passed on as they come; a client that goes away ends its request.
//   - A client whose body stands still for [Options.Stalls] while it is awaited, or that takes nothing of an answer for so long, is cut off. Silence of a backend is not: events may be rare.
//   - Upgraded connections end when their backend has been drained for [Options.Drain], and when Run ends.
//
// The way of a request: serve.go (ServeHTTP finds its site, RoundTrip sends it), site.go (which backend), backend.go (what it stands at), back through serve.go
// or answers.go. health.go has the checks, client.go how long a client may keep still, metrics.go what is counted.
package proxy
