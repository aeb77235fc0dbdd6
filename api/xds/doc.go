// Package xds serves the endpoints of services to Envoy, and to whatever else speaks xDS (gRPC clients, for one): EDS
// version 3 over gRPC, state of the world and delta, as a service of its own and aggregated (ADS). Clusters, listeners
// and routes are not served; asked for over ADS, they never come, and the stream goes on.
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
//   - A node address must have an IP: EDS knows no names. Instances with a host name are left out.
//
// A service is followed from the first stream that asks for it to the last; names that are no service names are ignored.
// A proxy gets a change as soon as the catalog has it; a weight that grows by itself, every 10 s. When it has acknowledged a version (its ACK of the response), the
// server calls Acked with the index that the version was built from, at once and then every 10 s as long as the stream
// lives, so that a drain can end as soon as all proxies know. A NACK acknowledges nothing. The watcher is
// "xds:<node id>"; of several streams of one node the slowest counts.
package xds
