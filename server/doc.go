// Package server assembles a server out of its configuration and of the machines that it runs: an application imports it to build a
// binary of its own. See docs/your-own-binary.md, which does so in thirty lines.
//
// [Run] takes a config.Config and [Options]: which machines there are, and a [Provider] for each of them that needs more than its
// table. Those that ship are put together in server/builtin; an application adds its own, or leaves out what it does not want.
//
// What is started, in this order, and stopped in reverse:
//
//	ports, data     ports.go, data.go            who else listens, who else has the data directory
//	NATS            nats.go, server/natscli      the embedded server or one that is attached to; connections, streams
//	the store       store.go, server/disk        refuses commands while nothing can be stored
//	indexes         index.go                     one per machine, for lists and watches
//	telemetry       telemetry.go                 metrics and traces, with server/backlog; server/memory gives memory back
//	the node        cluster.go                   this process among those that share the work
//	providers       host.go, options.go, add.go  what each machine brings, see [Host]; machines that are added later
//	consumers       run.go                       the engine; effects, looks at the world and views where this node has the role
//	doors           doors.go                     HTTP and NATS, then what providers do once these are open; then server/systemd is told
//
// A part that ends although it should not ends the server, with its error. A stop takes half a minute at most: see watchdog.go.
package server
