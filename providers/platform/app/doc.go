// Package app is what runs the applications of tenants: the contract of every kind of provider, and what kinds share.
//
// The contract of every [Provider], checked by one suite (package apptest):
//   - A release is named by namespace and name. Deploy returns its address when it has answered its health check below 400, and changes nothing when it is repeated. Releases run
//     beside each other.
//   - One that never becomes healthy is an [*UnhealthyError] with the last thing that it said; the next Deploy begins anew. One that ends after it was healthy is started
//     again, under the same address.
//   - What runs goes on while no server does, and the next server finds it.
//   - A release knows its tenant's directory (TENANT_DIR), which its releases share and which ends with Forget, and one that ends with the release (HOME). A directory is its owner's: another
//     one does not get it.
//     Kind knative has neither: nothing that a release writes into files stays.
//   - Secrets are given as files, named by NAME_FILE. No message has them.
//   - Remove returns when nothing of the release is left but the note that it was removed: an attempt before that makes nothing (Fenced), of kind knative for as long as the server runs, of docker and systemd for a week. That there is none is fine.
//   - Only versions of the configuration are run, never a command that a request has.
//   - Errors are those of package providers. Look of what is not there is NotFound, what can never work is Invalid.
//   - Every call ends soon after its context does.
//
// Kinds: process (package process), docker and systemd (package hosted), external (package external), knative (package knative).
package app
