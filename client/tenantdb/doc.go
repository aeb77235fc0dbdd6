// Package tenantdb gives an application connections to where each tenant's data is, while tenants are moved (package machines/database).
//
// The contract:
//   - [DB.Acquire] returns a connection to the database that the last epoch of the tenant names: its own, or the one that tenants share. Where that is comes from a bucket of NATS
//     that the server keeps (tenant_runtime); it is followed, so nothing is asked when a connection is needed, and an outage of NATS leaves what was known. [DB.Looked] says how old that is.
//   - A new epoch makes a new pool. The old one gives nothing out any more, and is closed when what was acquired has been released. Then a transaction that runs into the fence
//     (SQLSTATE 25006) has to be repeated by the application: the next connection is to the right database.
//   - An epoch is acknowledged when nothing is given out under an earlier one. The server waits for that, for as long as this process lives and has acquired the tenant within the last minute. What the server refuses,
//     as of more than 65,536 resolvers of a user, it does not wait for: [DB.Refused] counts that.
//   - A tenant that was closed has no connections: [ErrClosed].
//   - Credentials are opened in this process, with the keyset that the server has sealed them with, and are nowhere else in the clear.
package tenantdb
