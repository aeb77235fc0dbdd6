// Package postgres runs a private Postgres cluster: for `instar dev`, and for tests.
//
// The contract:
//   - [Start] needs initdb and postgres, on PATH or in /usr/lib/postgresql/<version>/bin; without them it answers
//     [ErrNoPostgres]. The cluster is made once and found again by the next Start with the same directory.
//   - Postgres refuses to run as root. A root process runs it as the user postgres, or nobody, and gives that user the
//     directory; its parents must let that user through.
//   - The server listens on loopback and on a socket in its directory, and wants a password (scram-sha-256) on both. The
//     password is in the file "password" of the directory, readable by its owner only.
//   - The server does not outlive its parent, kill -9 included, unless [Options].KeepRunning says so. What is left of an
//     earlier parent is stopped by Start, or adopted with KeepRunning. One process uses a directory at a time (flock).
//   - [Cluster.Stop] waits until the server has gone.
package postgres
