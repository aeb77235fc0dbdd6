package instance

import "time"

// Target is what one probe looks at.
type Target struct {
	Key     string // of the instance
	Address string // host:port that it registered
	Check   Check
	Timeout time.Duration // of this probe, exact; 0 is what Check says
}

// Result is what one probe saw.
type Result struct {
	OK      bool
	Status  int           // of HTTP, or the exit code of a script
	Output  string        // at most 512 bytes of valid UTF-8 without control characters; never empty when not OK
	Latency time.Duration // until it was decided
	Class   string        // why it is not OK, one of the Failed constants; empty when it is
}

// Classes of failed probes. The first three may be the fault of the one who probes.
const (
	FailedTimeout     = "timeout"     // no answer in time
	FailedUnreachable = "unreachable" // no route, or the network is down
	FailedResolve     = "resolve"     // no address for the name
	FailedRefused     = "refused"     // nobody listens, or the connection was cut
	FailedTLS         = "tls"         // the certificate or the handshake
	FailedStatus      = "status"      // another status than asked for, or "not serving"
	FailedMatch       = "match"       // the answer does not match
	FailedProtocol    = "protocol"    // the answer is none of the protocol
	FailedExit        = "exit"        // the script ended with another code than 0
	FailedForbidden   = "forbidden"   // the address may not be probed
	FailedConfig      = "config"      // the check cannot be carried out as it is written
)

// FailureClasses are all of them.
var FailureClasses = []string{
	FailedTimeout, FailedUnreachable, FailedResolve, FailedRefused, FailedTLS, FailedStatus, FailedMatch, FailedProtocol, FailedExit, FailedForbidden, FailedConfig,
}
