// Package xds serves the endpoints of services to Envoy: EDS version 3 over gRPC, state of the world and delta, as a service
// of its own and aggregated (ADS). Clusters, listeners and routes are not served; asked for over ADS, they never come, and
// the stream goes on. So gRPC's own xDS client, which begins with a listener, cannot use it.
//
//	server := &xds.Server{Address: "127.0.0.1:8658", Finder: catalog, Acked: acknowledge}
//	err := server.Run(ctx) // until ctx ends: nil; at once when the address cannot be listened on
//
// A cluster's EDS service name is <service>.<namespace>, or <service> for the default namespace. Of each service there is
// an assignment, of one that nobody knows an empty one, so that no proxy waits for it.
//
//   - Endpoints are grouped by zone into localities of priority 0, each with the weights of its endpoints as weight.
//   - The health is HEALTHY, DEGRADED for a suspect instance, and DRAINING for one that ends or whose weight is 0.
//   - The metadata envoy.lb of an endpoint has instanceId, version and the payload, for subsets.
//   - A node address must have an IP: EDS knows no names. Instances with a host name are left out, counted and logged.
//
// A service is followed from the first stream that asks for it to the last; names that are no service names are ignored.
// A proxy gets a change as soon as the catalog has it; a weight that grows by itself, every 10 s. All proxies of a server
// are one watcher, "xds:" and a name that no other server has: Acked is called with the index of the version that the
// slowest of its streams has acknowledged (the ACK of the response), whenever that changes and every 10 s, so that a drain
// can end as soon as all proxies know. A stream that has acknowledged nothing yet counts as 0, because its proxy may act on
// what another server has told it; one that broke counts for another 30 s as it was. A NACK acknowledges nothing;
// it is counted, and logged with its reason.
//
// xDS cannot say that something may be old. While the catalog is behind (Stale), the streams are ended after 10 s, and
// those that came back after another 30 s: a proxy keeps what it has, and asks the next of its servers, if it has more.
package xds
