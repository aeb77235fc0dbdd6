// Package nameserver answers "where is service X?" over DNS (UDP and TCP), from the memory of a [discovery.Finder]. It is
// authoritative for one domain and knows nothing else: no recursion, no transfers, no updates.
//
//	server := &nameserver.Server{Address: "127.0.0.1:8653", Finder: catalog, Stale: catalog.Stale}
//	err := server.Run(ctx) // until ctx ends: nil; at once when the address cannot be listened on
//
// Names, with the domain "instar." Case does not matter, and the answer repeats the case of the question.
//
//	<service>.<ns>.instar.                   A, AAAA: the addresses; SRV: addresses and ports; TXT: one record per instance
//	<service>.instar.                        the same in the default namespace
//	_<service>._tcp.<service>.<ns>.instar.   SRV only: the port of the node address
//	_<port>._tcp.<service>.<ns>.instar.      SRV only: the port that the payload gives as port.<port>; also _udp
//	<tag>.tag.<service>.<ns>.instar.         only instances with the tag
//	<version>.version.<service>.<ns>.instar. only instances of the version; it may have dots
//	<zone>.zone.<service>.<ns>.instar.       A, AAAA: those of the zone, the others only when it has none;
//	                                         SRV: priority 0 for those of the zone, 1 for the others
//	<instanceId>.<service>.<ns>.instar.      one instance, also while it drains: the target of SRV records
//	instar.                                  SOA, NS
//	ns.dns.instar.                           this server, which hides a service ns in a namespace dns
//
// _port._tcp can stand before tag, version and zone, too. Tags, versions and zones that are not of letters, digits, "-",
// "_" and "." cannot be asked for.
//
// What an answer holds.
//   - Only instances that may be routed to. Those of weight 0 are left out unless all have it.
//   - The order is random, anew for each answer; an instance is the more often first the more it weighs. Of more than 256
//     records, 256 that were drawn in this way.
//   - A node address with an IP is an A or AAAA record, and SRV points at the name of the instance, with its address in
//     the additional section if there is room. A node address with a host name is never followed: it has no A and no
//     AAAA record, and SRV points at the host itself. There are no CNAMEs, since a name with one may have nothing else.
//   - SRV weights are those of discovery (warm-up, suspicion and an administrator's word included), up to 65535.
//   - TXT has the payload as key=value, sorted, one record per instance. A pair above 255 bytes is left out.
//
// What is not there.
//   - NXDOMAIN: no instance of this service is or was known, or the instance is not to be found.
//   - No error and no record, with the SOA (NODATA): the service is known, but nothing of it matches at the moment; so
//     also for each tag, version and zone of a known service, for these are filters.
//   - REFUSED: names outside the domain, transfers, classes other than IN. ANY gets one HINFO record, "RFC8482".
//
// While Stale says that the catalog may be behind, what is known is answered as always, with a TTL of 30 s, so that those
// who can do no better ask less often, and the extended error "stale answer" for those that speak EDNS (RFC 8767). Only a
// service that is not known is SERVFAIL instead of NXDOMAIN, for it may have come since; and after a day, everything is.
//
// A delegation or a stub zone leads to ns.dns.<domain>. Its addresses are those of this server: the one that it listens on,
// those of the host, or Addresses.
//
// Over TCP there are up to 1,024 connections, 64 from one address, each with up to 128 questions, one after the other.
//
// Over UDP an answer has at most the size that the client gave (512 bytes without EDNS), and never more than 1232 bytes;
// what does not fit is cut off and marked (TC), and the client asks again over TCP.
package nameserver
