// Package preservation is the self-preservation of one service in one zone: when many of its instances expire within
// one window, it is more likely that the registry cannot hear them than that they are dead, so nothing expires until
// they are heard again or the baseline has decayed. Its key is <namespace>.<service>.<zone>; the zone of instances
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
	ReportDecayed  = "decayed"  // those that are silent have been so for so long that they do not count any more

	TimeoutSettled = "settled" // recovering has lasted
	TimeoutDecay   = "decay"   // protected has lasted too long (30 min by default)
)

// Losses is how a service stands in one zone.
type Losses struct {
	Total    int     `json:"total"`    // instances that should be heard
	Expiring int     `json:"expiring"` // of these, silent for longer than they may
	Window   string  `json:"window"`   // in which they went silent
	Limit    float64 `json:"limit"`    // share that was exceeded; 0.15 by default
}
