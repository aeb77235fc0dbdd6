package instance

// States. The names are those of the first design; registering and active are the prefixes of its nested states.
const (
	Pending      = "registering.pending_persistence"
	Unknown      = "active.unknown"   // registered, not checked yet: not found
	Warming      = "active.warming"   // passed its checks, gets a growing part of its weight
	Healthy      = "active.healthy"   // found
	Suspect      = "active.suspect"   // said nothing for a while: still found, with less weight, for a bounded time
	Unhealthy    = "active.unhealthy" // not found
	Flapping     = "active.flapping"  // changed too often: held down, not found
	Draining     = "draining"         // ends; found only when it is asked for
	Deregistered = "deregistered"
)

// Inputs. In brackets the name that the first design gave the event.
const (
	CommandRegister    = "register"          // [REGISTER]
	CommandShutdown    = "graceful-shutdown" // [GRACEFUL_SHUTDOWN]
	CommandForce       = "force-deregister"  // [FORCE_DEREGISTER]
	CommandCancelDrain = "cancel-drain"      // [DRAIN_CANCELLED]
	CommandMaintenance = "maintenance"
	CommandPin         = "pin" // an administrator's weight
	CommandLabel       = "label"

	ReportPersisted      = "persistence-success" // [PERSISTENCE_SUCCESS] the owner has read the record back and admits it
	ReportRefused        = "registration-failed" // [REGISTRATION_FAILED]
	ReportPassed         = "health-check-passed" // [HEALTH_CHECK_PASSED]
	ReportFailed         = "health-check-failed" // [HEALTH_CHECK_FAILED]
	ReportMissed         = "heartbeat-missed"    // [HEARTBEAT_MISSED]
	ReportConfirmed      = "suspicion-confirmed" // another observer sees the same
	ReportGone           = "critical-confirmed"  // who looks at it for long enough sees it gone, after TimeoutCritical
	ReportFlap           = "flap-detected"       // [FLAP_DETECTED]
	ReportCalm           = "flap-calmed"         // its results are steady again
	ReportDrained        = "drain-complete"      // [DRAIN_COMPLETE]
	ReportProtect        = "protect"             // its service and zone are in self-preservation: nothing expires
	ReportUnprotect      = "unprotect"
	ReportMaintenanceEnd = "maintenance-expired"

	TimeoutRegistration = "registration-deadline"
	TimeoutWarmup       = "warmup-complete"           // [WARMUP_COMPLETE]
	TimeoutSuspect      = "suspect-timeout"           // [SUSPECT_TIMEOUT]
	TimeoutFlap         = "flap-cleared"              // [FLAP_CLEARED]
	TimeoutCritical     = "deregister-critical-after" // [DEREGISTER_CRITICAL_AFTER]
	TimeoutDrain        = "drain-timeout"             // [DRAIN_TIMEOUT]
)

// Versions of HTTP that a check may insist on.
const (
	HTTP1 = "1.1"
	HTTP2 = "2"
)
