// Package preservation is the self-preservation of one service in one zone: when many of its instances fall silent, or fail
// their probes, within one window, it is more likely that the registry cannot hear them than that they are dead, so
// nothing expires until they are well again or the baseline has decayed. Its key is <namespace>.<service>.<zone>; the zone of instances
// without one is "none".
package preservation

// NoZone stands for the zone of instances that have none.
const NoZone = "none"

// States.
const (
	Normal     = "normal"
	Protected  = "protected"  // nothing expires
	Recovering = "recovering" // heard again; ends in normal when it lasts
)

// Inputs.
const (
	CommandHold    = "hold"    // an operator: stay protected until released
	CommandRelease = "release" // an operator: what is silent is dead

	ReportLosses   = "losses"   // too many expire at once; body Losses; creates the entity
	ReportRenewals = "renewals" // enough are heard again; body Losses

	TimeoutSettled = "settled" // recovering has lasted
	TimeoutDecay   = "decay"   // protected has lasted too long (30 min by default)
)

// Losses is how a service stands in one zone.
type Losses struct {
	Total    int     `json:"total"`    // instances that should be well
	Expiring int     `json:"expiring"` // of these, silent for longer than they may, or failing
	Window   string  `json:"window"`   // in which that began
	Limit    float64 `json:"limit"`    // share that was exceeded; 0.15 by default

	// Blind says that most of what the node probes gives no answer, in this zone, its namespace or all: then any loss is
	// too many.
	Blind bool `json:"blind,omitempty"`
}
