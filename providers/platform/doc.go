// Package platform performs the effects of the machine instance_provisioning: a tenant's own instance, on this machine.
//
// The contract:
//   - A slug is the tenant's whose session has the row of the primary domain, in the table that bindings of domains are in, too. All names are made from the slug, so whoever
//     has it has them: instance, bucket, releases, route and certificate. It is released last, and only by its owner.
//   - Every effect is idempotent, and fenced by the version of the entity: in that row, and in the databases and the processes themselves. What an attempt has made that was
//     overtaken meanwhile, it takes back.
//   - The steps of the database are performed by the workers of machines/database, of whose tasks this machine's tasks are a kind.
//   - Traffic changes by the route alone. A release is removed after the route has led elsewhere for [Provider.Settle], and never while the route leads to it.
//   - An undo performs its actions in the order given, says of each what became of it, and stops only at one that says so. Where the slug is another session's, nothing of
//     what is named by it is touched.
//   - Secrets are given to releases as files; no result, event or error has them.
//
// provider.go has the table of effects, steps.go the way to an instance, upgrade.go that to another version, undo.go the way back, row.go the fence, look.go what is polled.
// The parts below: process, storage, export.
package platform
