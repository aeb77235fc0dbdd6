// Package process runs the applications of tenants as processes of this machine, each release beside the others.
//
// It is package providers/process with templates of its own: that holds listening sockets, hands them over, adopts what runs after a restart of the server (by pid, start
// time and boot), starts again with a backoff what crashed, ends with SIGTERM and then SIGKILL, bounds logs, and fences each name over all its lives.
//
// The contract:
//   - A release is one process. It gets its listening socket as fd 3 (LISTEN_FDS and LISTEN_PID, as systemd does) and its number as PORT. The socket is there for as long as the
//     release is: while its process starts again, connections wait.
//   - A release has a directory of its own, its HOME and working directory, which ends with it. TENANT_DIR is the tenant's, which all its releases share and which ends
//     with the instance. Both are readable by the owner of the server only, who also runs the processes: they are not isolated from each other.
//   - Secrets are files of the release's directory, named by NAME_FILE; no variable, command line or state file has them, and no message, also where the program wrote them.
//   - Each process is bounded by [Config.Limits], becomes no other user, and leaves no memory dump.
//   - Deploy returns when the release has answered its probe, and is repeated without harm. One that never becomes healthy is an [*UnhealthyError]; the next Deploy
//     begins with a new process.
//   - Remove returns when no process of the release is left, and nothing of its directory.
//   - Ports come from [Config.Ports]. Where all are in use, Deploy fails with Unavailable and says so.
//   - Only versions of [Config.Versions] are run, never a command that a request has. A version stays configured for as long as a tenant has it.
package process
