package instance

// Kinds of checks.
const (
	CheckNone   = "none" // healthy for as long as it is registered
	CheckTTL    = "ttl"  // the instance sends heartbeats
	CheckHTTP   = "http"
	CheckTCP    = "tcp"
	CheckGRPC   = "grpc"
	CheckUDP    = "udp"
	CheckAlias  = "alias"  // as healthy as another instance
	CheckScript = "script" // only where the configuration allows it
)

// Source is where the health of an instance comes from.
type Source int

// The sources.
const (
	Registration Source = iota // it is healthy while it is registered
	Heartbeats                 // it says so itself
	Probes                     // the owner of its partition probes it, and other observers
	Following                  // it is as healthy as another instance
)

// sources is the registry of the kinds of checks, in the order in which they are told. A kind that is not here is refused at the door. One
// more is added here and to the enum of Check.Type (data.go); if it is probed, its probe to the map probes in providers/probe/probe.go. Tests find what is missing.
var sources = []struct {
	kind   string
	source Source
}{
	{CheckNone, Registration},
	{CheckTTL, Heartbeats},
	{CheckHTTP, Probes},
	{CheckTCP, Probes},
	{CheckGRPC, Probes},
	{CheckUDP, Probes},
	{CheckAlias, Following},
	{CheckScript, Probes},
}

// Kinds are the types of checks.
var Kinds = func() (all []string) {
	for _, s := range sources {
		all = append(all, s.kind)
	}
	return all
}()

// SourceOf is the source of a kind of check; [Registration] for one that nobody knows.
func SourceOf(kind string) Source {
	for _, s := range sources {
		if s.kind == kind {
			return s.source
		}
	}
	return Registration
}
