// Package platform serves machines/platform (instance_provisioning): it gives tenants instances of their own on this machine.
//
// The contract:
//   - There is the machine only where the configuration has platform.domain, which needs the sections tenants and domains. What is wrong with it, or a directory that another
//     server has, ends the start.
//   - Names below the domain are in the table of the proxy that package domains has; their certificates are issued and renewed by what issues those of custom domains.
//   - Databases are made by what package tenants has, and its keyset opens what a release is given to enter its own.
//   - Who has a name below the domain counts for the quota. An export is a directory of platform.export.
//   - Releases run on while no server does, unless the configuration says stopServices.
//   - A row of the table whose session is gone is given free, and what has a certificate is looked at for its renewal, by one node at a time.
package platform
