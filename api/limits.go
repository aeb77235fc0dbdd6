package api

import "github.com/bcc94042/instar/api/limits"

// Limits are what one client, and all of them together, may hold and ask. A client is a token; without tokens an address
// (of IPv6 a network of 64 bits); of connections always an address; over NATS what [rpc.Client] makes of it. A bound of 0 is
// none.
type Limits struct {
	Connections limits.Bound // of HTTP that are open
	Watches     limits.Bound // and blocking reads of discovery
	Waits       limits.Bound // requests that wait for more than their answer: settle, Prefer: wait, minRevision
	Commands    limits.Bound // that wait for their turn, or for the answer of the engine
	Questions   limits.Bound // over NATS, and of storage over HTTP, that wait for their turn or are under way
	Rate        int          // requests a second of one client that has no rate of its own, over HTTP and NATS; 0 is no limit
	Burst       int          // at once after a silence; 0 is as many as in a second

	// CommandsAtOnce is how many commands the engine has from this process at once, and from one client at most; 0 is no bound. Clients take
	// turns: see [limits.Turns].
	CommandsAtOnce int

	Entities int // of machines whose entities can end, that live in one namespace as far as this process knows; 0 is no bound
}

// DefaultLimits leave a client a quarter of what there is.
var DefaultLimits = Limits{
	Connections: limits.Bound{All: 24000, Each: 6000}, Watches: limits.Bound{All: 20000, Each: 5000},
	Waits: limits.Bound{All: 4096, Each: 1024}, Commands: limits.Bound{All: 4096, Each: 1024}, Questions: limits.Bound{All: 4096, Each: 1024}, CommandsAtOnce: 256,
}

// WatchMemory is what a watch takes of the memory of the process, with its connection: one of all machines, which takes most. While its snapshot is sent, a part of that
// comes to it, some 100 KiB.
const WatchMemory = 72 << 10
