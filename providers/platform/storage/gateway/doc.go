// Package gateway serves the buckets of tenants in JetStream to clients of S3, each with credentials of its own: JetStream has none that reach one bucket alone.
//
//   - A release of a tenant's application gets a key ([Keys.Give]) that opens the bucket of its tenant, and nothing else. It is sealed where it is stored, and is refused from when the release is
//     removed ([Keys.Revoke]), or the bucket is another owner's.
//   - Requests are signed (AWS Signature Version 4, in a header or a query); an unsigned one, or one that is signed with another key, is refused before anything of it is read.
//   - A [Gateway] takes objects in one request or in parts, and gives all of one or a range. An object is there when all of it is stored. Conditions (If-Match, If-None-Match) hold when it is replaced.
//   - The quota is the bucket's. What goes beyond it is refused with EntityTooLarge.
//   - Buckets are neither made nor removed here, and have no versions, policies, tags and lists of access.
//
// The protocol is that of github.com/rclone/gofakes3, which `rclone serve s3` speaks.
package gateway
