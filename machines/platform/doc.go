// Package platform is the lifecycle of a tenant's own instance: compute, database, storage, application, domain and certificate.
//
// The contract:
//   - A session goes requested, allocating_instance, allocating_db, allocating_storage, deploying_app, running_migrations, migrating_data, configuring_domain, issuing_cert,
//     verifying, ready. Attempts, clocks, phases, pause, cancel, retry, rollback and resolve are those of all sessions (package session).
//   - migrating_data moves the tenant's rows out of the shared database (data: shared), or is skipped with an event (data: new, the default). The database steps have the
//     names and the tasks of machines/database, so that its workers perform them.
//   - verifying has steps: readiness, compare (only where rows were moved), switch. Readiness comes first, because in mode online the comparison ends with the tenant fenced. The switch of
//     tenant_runtime is the last act before ready; it is firm: it is not paused, cancelled or rolled back by itself, and is not repeated.
//   - The ledger has everything before it is created, the slug first. An undo goes backwards: routing, certificate, domain, route, fence, replication, application, storage,
//     database, instance, slug.
//   - A generated slug that is taken gets a suffix, in a new task; a preferred one fails with SLUG_ALREADY_EXISTS. With that code nothing was created under the slug: slug and instance leave the ledger,
//     because an undo would take what is of another tenant.
//   - The version is pinned by the plan (or by the request), and every task has it. The plan may ask for approval; a quota that is used up fails it.
//   - A custom domain is asked for in configuring_domain, and not waited for: whoever owns it has to edit DNS (machines/domain).
//   - upgrading is a state, because it has clocks, attempts, a pause and a way back of its own, and because lists and alarms are made of states; the tenant is served all the time. Its steps:
//     plan, migrate, deploy (beside the running release), shift (once per weight, with health watched; each further one waits for approve if that is asked for), promote. What fails before promote is withdrawn, and the tenant is ready
//     again under the release that it had, with the reason as its last error; an upgrade never fails a tenant. Every task of an upgrade has its release, by a number
//     that no other has, so that withdrawing never names the one that serves. In promote it has the new release, and only what is left of the old one can fail to go:
//     it stays in the ledger. Migrations are not taken back: those of a version must suit the one before it.
//   - downgrade is an upgrade to the version before.
//   - deprovision closes the tenant by an undo of the ledger, after the routing is closed. If asked for, its data is exported between: the route and every release are gone by then, so that nothing is
//     written after the export, and what holds data is still there. Without the export, it stays.
//
// machine.go is the stages and the table, upgrade.go the way to another version, ledger.go what is created and undone, actions.go what edges do, data.go and task.go what is stored and sent.
package platform
