// Package domains serves machines/domain: a proxy on every node for the domain names of tenants, with certificates that all nodes share.
//
// The contract:
//   - There is the machine only where the configuration has domains.https. What is wrong with that, or a port that is taken, ends the start.
//   - Who has a name, and where its requests go, is in the bucket domain_routes; each node's proxy follows it, and swaps its table at once. Certificates, accounts and
//     locks are in the bucket certificates, sealed with the keyset of domains.keys.
//   - A certificate is loaded, or issued, only for names that the table has a route for, and by the effect of the machine.
//   - Targets are connected to under the same rules as probes: never this server itself, nor where hosts find their credentials.
//   - A node that stops takes no new connections, and lets requests end.
package domains
