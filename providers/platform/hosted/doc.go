// Package hosted runs the applications of tenants by what runs programs on this machine already: an engine of containers ([Docker]), or systemd ([Systemd]).
//
// Beside the contract of package app:
//   - A release is one [Unit] of its [Engine], which starts it again when it ends. It listens on HOST and PORT itself: while it starts again, connections are refused.
//   - What is known of a release is in a file beside its directory, written before its unit is made. A unit that is gone is made again, as after a restart of the machine;
//     one that runs and is not known is not touched.
//   - A release that has ended three times before it was healthy, or has not answered in [Config.Startup], is unhealthy. One that hangs later is not ended: that is the engine's matter.
package hosted
