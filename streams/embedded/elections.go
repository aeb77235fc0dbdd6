package embedded

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server" // whose variables these are
)

// Followers of NATS wait 4 to 9 s for a leader that is gone, and a vote that is split costs that again. There is no option
// for it. Members of an embedded cluster elect twice as fast, with all that depends on it, so that what the times are to each
// other stays as it is: see ADR 14. It also holds for a single server, which elects nobody.
const electionPace = 2

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

//go:linkname heartbeatInterval github.com/nats-io/nats-server/v2/server.hbInterval
var heartbeatInterval time.Duration

//go:linkname lostQuorumInterval github.com/nats-io/nats-server/v2/server.lostQuorumInterval
var lostQuorumInterval time.Duration

//go:linkname lostQuorumCheck github.com/nats-io/nats-server/v2/server.lostQuorumCheck
var lostQuorumCheck time.Duration

// Before any server runs, as its goroutines read these without a lock.
func init() {
	for _, d := range []*time.Duration{&minElectionTimeout, &maxElectionTimeout, &heartbeatInterval, &lostQuorumInterval, &lostQuorumCheck} {
		*d /= electionPace
	}
}
