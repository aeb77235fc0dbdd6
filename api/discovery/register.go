package discovery

import "github.com/bcc94042/instar/machines/instance"

// Registration is what a service says that registers an instance of itself.
type Registration struct {
	ServiceName string `json:"serviceName" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" example:"web" doc:"The service that it is an instance of"`
	instance.RegisterBody
	InstanceID string `json:"instanceId,omitempty" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"Its name among the instances; by default it follows from service and nodeAddress, so that a process which registers again is the same instance"`
	Namespace  string `json:"namespace,omitempty" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" doc:"Namespace; overrides ?namespace="`
}

// Heartbeat is what an instance says of itself between its registrations.
type Heartbeat struct {
	Generation uint64 `json:"generation,omitempty" doc:"Generation of the registration; heartbeats of older generations are refused"`
	Status     string `json:"status,omitempty" enum:"passing,warning,critical,failing" doc:"Health as the instance sees it; passing by default. failing is an alias of critical"`
	Output     string `json:"output,omitempty" maxLength:"512" doc:"Reason for the status"`
	InFlight   *int   `json:"inFlight,omitempty" minimum:"0" doc:"Requests under way; while it drains, 0 ends the drain early"`
	Weight     *int   `json:"weight,omitempty" minimum:"0" maximum:"65535" doc:"Weight that the instance reports for itself"`
}

// Acknowledgement is what a watcher of a service has acted on.
type Acknowledgement struct {
	Watcher string `json:"watcher,omitempty"`
	Index   uint64 `json:"index" doc:"The watcher has applied every change up to this index of discovery"`
}

// The names that the routes need of the machine.
const (
	CommandRegister = instance.CommandRegister
	CommandShutdown = instance.CommandShutdown
	CommandForce    = instance.CommandForce
	Deregistered    = instance.Deregistered
	Draining        = instance.Draining
)

// InstanceID is the id of an instance that chose none.
func InstanceID(namespace, service, address string) string {
	return instance.InstanceID(namespace, service, address)
}
