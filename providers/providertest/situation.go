package providertest

import (
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// The situations that a service goes through.
const (
	Unseen     = "unseen"                 // the gateway has not looked at the object yet
	Creating   = "creating"               // no revision has become healthy
	Routing    = "routing"                // the revision is healthy, connections do not reach it yet
	Ready      = "ready"                  // what was asked for serves
	Outdated   = "outdated"               // the status speaks of an older specification
	Updating   = "updating"               // the old revision serves until the new one is healthy
	FailedKept = "failed, the old serves" // the new revision failed, the old one serves
	Gone       = "gone"                   // there is no object

	Failed    = "failed"    // the first revision failed
	Unhealthy = "unhealthy" // what served before does not
	Ending    = "ending"    // being deleted
)

// Situation names what an observation tells about the service whose specification has that hash.
func Situation(o *service.Observation, hash string) string {
	routes := status(o, "RoutesReady")
	switch {
	case !o.Exists:
		return Gone
	case o.ObservedGeneration == 0:
		return Unseen
	case o.ObservedGeneration != o.Generation || o.SpecHash != hash:
		return Outdated
	case o.Reason == "Terminating":
		return Ending
	case o.Ready == machines.True:
		return Ready
	case o.Ready == machines.False && o.Reason != service.ReasonRevisionFailed:
		return Unhealthy
	case o.Ready == machines.False && routes == machines.True:
		return FailedKept
	case o.Ready == machines.False:
		return Failed
	case status(o, "ConfigurationsReady") == machines.True:
		return Routing
	case o.LatestReady != "" && o.LatestReady != o.LatestCreated:
		return Updating
	}
	return Creating
}

func status(o *service.Observation, typ string) machines.Status {
	for _, c := range o.Conditions {
		if c.Type == typ {
			return c.Status
		}
	}
	return machines.Unknown
}
