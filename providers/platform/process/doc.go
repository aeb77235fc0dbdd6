// Package process runs the applications of tenants as processes of this machine, each release beside the others.
//
// It is package providers/process with templates of its own: that holds listening sockets, hands them over, adopts what runs after a restart of the server (by pid, start
// time and boot), starts again with a backoff what crashed, ends with SIGTERM and then SIGKILL, bounds logs, and fences each name over all its lives.
//
// Beside the contract of package app:
//   - A release is one process. It gets its listening socket as fd 3 (LISTEN_FDS and LISTEN_PID, as systemd does) and its number as PORT. The socket is there for as long as the
//     release is: while its process starts again, connections wait. One of a version with Port listens on HOST and PORT by itself, and a forwarder has its socket. Its HOME is its
//     working directory, too.
//   - Processes, directories and secrets are of this server's user, and closed to others: tenants are not isolated from each other. With [Config.FirstUser] and [Config.LastUser]
//     they are of a user that each tenant has of its own.
//   - Each process is bounded by [Config.Limits], and by those of the release in their place, gains no privileges by a program such as sudo, and leaves no memory dump.
//   - No variable, command line or state file has a secret.
//   - Ports come from [Config.Ports]. Where all are in use, Deploy fails with Unavailable and says so.
//   - A version stays configured for as long as a tenant has it.
package process
