// Package probe looks at instances: HTTP, TCP, gRPC health, UDP and scripts. It holds nothing per instance, keeps no
// connection between two probes, and starts no goroutine that outlives one.
//
// What holds of every probe:
//   - It ends at its timeout, whatever the other side does: a name that does not resolve, headers or a body that drip, a
//     script that has children of its own.
//   - It reads at most 64 KiB of headers and 64 KiB of a body, and returns at most 512 bytes of output, without control
//     characters.
//   - It sends GET or HEAD without headers but Host, unless Options.AnyRequest allows more, and looks for an expression in
//     an answer only where Options.Match allows it. Whoever may register could otherwise write and read inside the network.
//   - What the other side answers is in no result: a status is told in the words of the standard, without the size of the
//     answer, and a certificate that is not taken by its names.
//   - It connects only where it may. The rule is applied to the address that is connected to, after the name was
//     resolved and for each redirect anew, so neither a name that resolves differently the second time nor a redirect
//     leads elsewhere.
//
// Refused are link-local addresses (and with them the metadata services of most clouds), the metadata addresses that are
// not link-local, multicast, broadcast and unspecified addresses, also where they are written as IPv6 addresses that
// stand for IPv4 ones. Loopback and private networks are allowed, because that is where services live; Options.Deny takes
// them out. Options.Own are the listeners of this program: a Host header, a path or a redirect could otherwise make a
// probe speak to its administration from an address that is trusted. They are refused on every address of this host.
//
// ttl, alias and none are no probes: who owns the instance knows those.
package probe
