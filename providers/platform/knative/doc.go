// Package knative runs the applications of tenants as Knative Services of a cluster, by the gateway that runs services there (package providers/knative).
//
// Beside the contract of package app:
//   - A release is a Knative Service of its name with one copy of its image, which the cluster starts again when it ends; the secrets are a Secret that goes with it. What is known of a
//     release is in these two, so that nothing of it is on this machine.
//   - Its address is the host of the URL that Knative gives it. All releases are behind one ingress, so requests have to have that host ([app.Virtual]). The object keeps it (instar/address), for the time when the URL is another one.
//   - The cluster asks for the health, and says when a release is ready or has failed, with the last line that its program wrote. One that has failed may get well while it has [Apps.Grace].
//   - The Secret with the name of a tenant says whose it is. There are no directories: TENANT_DIR is not set.
//   - What a release cannot have there is refused when the server starts: a version without an image ([Apps.Check]).
package knative
