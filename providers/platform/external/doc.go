// Package external has the applications of tenants run by a program elsewhere, in any language, that answers requests over NATS.
//
// Beside the contract of package app, of which the program has to keep its part (docs/platform.md has the protocol):
//   - One request has one answer, within [Apps.Within]; what takes longer is begun, and looked at. Requests are repeated: after a timeout, a restart of the server, a failure.
//   - A release that is there with other values (another hash), or has failed, is removed before it is deployed again, and so is one that was not
//     ready in time and is not yet, as far as this server knows: after its restart, the next attempt waits once more.
//   - Where nobody answers, it is Unavailable, and says on which subject nobody did.
//   - Secrets are in the requests: the connection has to be of those who may know them.
package external
