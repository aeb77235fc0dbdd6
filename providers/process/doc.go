// Package process runs services as supervised local processes: the embedded default gateway.
//
// What it runs comes from an allow-list of templates in the configuration and never from a request: the image of a
// specification is the name of a template, and its environment may not steer the loader, interpreters or the gateway.
//
// # Sockets
//
// The control plane opens the public listening socket of each service. The port stays the same for the life of the
// service, also when the control plane starts anew. It never accepts on the socket, it only holds it, so that
// connections wait in the kernel's queue, unrefused, while the process behind it starts again. How the socket
// reaches the program is said by the template:
//   - shared (hello, static): the process has the public socket as fd 3 and a private one as fd 4 and follows the
//     protocol of package builtin: it is probed on the private one, told to accept on the public one when it is
//     healthy, and drained with SIGTERM. Old and new revisions share the one socket.
//   - fd: the program knows LISTEN_FDS=1 (systemd's protocol, LISTEN_PID included) and gets a private socket as fd 3.
//   - public: the program gets the public socket itself in the same way, and accepts from its start. No forwarder is in between, nor an
//     update: such a service is one process, and what is to follow it is another service.
//   - port: the program listens on 127.0.0.1:$PORT, a free port that is chosen at each start, from Config.Ports where that is set.
//
// What the template says when a revision begins holds for all its life.
//
// For fd and port the public socket is accepted by a forwarder, a process of its own (builtin's forward) that
// survives the control plane and passes each connection on to a healthy process of the serving revision.
//
// # What is promised about connections
//
//   - No connection is refused from the first Ready to the deletion: not during an update, a crash and restart, a
//     kill -9 of the control plane, or its start.
//   - shared: no connection that a process has accepted is cut by an update, unless its request runs longer than
//     Config.Grace.
//   - fd, port: how well the old process ends its connections on SIGTERM is its own affair. The forwarder has sent
//     new ones elsewhere for a moment before it gets the signal. The program sees the forwarder as its client.
//   - What a process had accepted when it crashed or was killed is reset: nobody else has that data. With no process
//     to take it, a connection waits: without limit in the kernel's queue, for 15 s in the forwarder.
//   - A forwarder that dies cuts the connections through it; the public socket stays.
//   - While no control plane runs, nothing restarts what crashes, and log files are not bounded.
//
// # Life of processes
//
// Processes are leaders of their own process groups and have no parent-death signal: they outlive the control plane,
// whether it is killed or stopped in an orderly way, so upgrading it refuses nothing. [Gateway.Close] can be asked to
// stop them. What a process has started ends with it, also what has left its group (package child). Under systemd the unit needs KillMode=process. State files record pid, start time and boot; [Open]
// adopts what still runs and is the same process, takes the public socket back from it by pidfd_getfd(2), and kills
// processes of its own that no state file knows. Where the kernel forbids pidfd_getfd, a second socket is bound to
// the port (SO_REUSEPORT) when it is needed, and new connections are steered to it before the old one is closed; when
// the last process that has that one crashes, they are refused for the moment until that is seen. The
// exit code of an adopted process cannot be known.
//
// Layout: <dir>/<namespace>.<name>/state.json, written atomically, and logs/<revision>.log. The directory of a
// deleted service keeps its state file as a tombstone, so that a late request of an earlier life is fenced.
package process
