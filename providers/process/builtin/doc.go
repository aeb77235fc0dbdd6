// Package builtin holds the programs that this binary can run as a service by itself, started by the process gateway
// through a hidden subcommand that calls [Main].
//
//   - hello is a small server that tells who it is; it can be told to be slow, sick, or to exit.
//   - static serves a directory.
//   - forward passes connections on to programs that know nothing of passed sockets.
//   - exec sets LISTEN_PID, which only the process itself can know, and becomes the command that follows it.
//   - end kills everything that a user runs, whose number follows it, and then that of a user that nothing runs under.
//
// The first three follow the protocol of shared sockets, which another program may follow, too:
//   - LISTEN_FDS=2, LISTEN_FDNAMES=public:private: fd 3 is the public listening socket of the service, shared with the
//     control plane and with other revisions, and fd 4 a private one on loopback. Both are in non-blocking mode.
//   - It serves fd 4 at once: the probe asks for its health there.
//   - It accepts on fd 3 only from the first POST /-/activate on fd 4 on, and answers that with 204 when it does. Paths that begin with /-/ need the header Instar-Owner with the value of the variable
//     INSTAR_OWNER, which all processes of a gateway have. Those of forward need the value of INSTAR_SECRET, which is of that process alone.
//   - On SIGTERM it stops accepting on fd 3, answers what it has accepted with "Connection: close", and exits.
//
// Started by hand, without passed sockets, each listens on 127.0.0.1:$PORT.
package builtin
