// Package domain is the lifecycle of a domain name that a tenant brings: its DNS records are awaited, its ownership is verified, a certificate is
// issued and renewed, and its requests go to the tenant's targets.
//
// The contract:
//   - A name goes pending_dns, verifying, issuing, active. Nobody waits for it: whoever edits DNS has seven days, then it is expired.
//   - It is proven by a TXT record under _instar.HOST with a token of this entity and of this life alone, so that no other tenant can bind a name whose record is
//     there for this one. The proxy has a name for one entity at a time; the second one fails with HOST_TAKEN, unless the proof of the first one is gone: then that one fails.
//   - active is watched: a certificate that could not be renewed before its end makes the name expired, and its requests are not served any more. retry begins
//     again with the records.
//   - retarget takes effect without a refused request, while the name is active; before that it changes what will be served.
//   - remove takes the name from the proxy and forgets its certificate; what had begun before is taken back as well. Only removed is an end.
//
// machine.go is the table, actions.go what its edges do, data.go what is stored and sent.
package domain
