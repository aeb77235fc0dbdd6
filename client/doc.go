// Package client is how a Go program takes part in discovery: it registers itself and says that it is alive, finds others
// and calls them, and ends without anybody noticing. It speaks HTTP to a registry and needs the standard library only.
//
//	registry := &client.Client{URLs: []string{"http://127.0.0.1:8080"}}
//
//	lease, err := registry.Register(ctx, client.Registration{Service: "web", NodeAddress: "10.0.0.7:8080"})
//	err = client.DrainOnSignal(ctx, lease, server) // blocks; SIGTERM: first out of discovery, then out of service
//
//	transport := registry.Transport(nil)
//	defer transport.Close()
//	http := &http.Client{Transport: transport}
//	http.Get("http://web.instar/hello") // some instance of web
//
// Being found. A [Lease] sends heartbeats at a third of the TTL (with jitter). Registered again by another process with
// the same address, it ends with [ErrReplaced]; deregistered by somebody else, it registers again. [Lease.Drain] takes the
// instance out of discovery and returns when the registry says that it is deregistered: all watchers have confirmed that
// they send nothing more and no request is under way, or the registry's deadline has passed.
//
// Finding. A [Resolver] holds the instances of one service, fed by a watch. While no registry can be reached it goes on
// with what it knew last, also after a restart if [Client].CacheDir is set; [Resolver.Staleness] tells for how long. So it
// does while the node that it hears cannot hear the others; then another node is tried every 10 s. A node that is behind and knows
// less than what is known here is not believed: a failover never leads back in time. It confirms what it has applied at once and every 10 s,
// and holds a confirmation back (up to a second) until the calls to instances that have gone are over: a drain that waits
// for the confirmations ends no connection that somebody is about to use.
//
// Calling. A [Transport] chooses an instance for each request, tries another when a call cannot have been processed, or
// may safely be repeated, and leaves out for a while those that fail, hang, or break off in mid-answer. What it sends again
// is bounded.
//
// What is exported is safe for concurrent use. Goroutines live as long as their Lease, Resolver or Transport; Close ends
// them and waits for them.
package client
