package service

import (
	"cmp"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Spec is what a user wants to run: one shape for every gateway.
type Spec struct {
	Image        string            `json:"image" minLength:"1" maxLength:"512" example:"hello" doc:"Container image (knative), or the name of an allow-listed template (process)"`
	Env          map[string]string `json:"env,omitempty" doc:"Environment of the process"`
	Port         int               `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Port that the image listens on; 0 lets the gateway choose"`
	Scale        Scale             `json:"scale,omitzero" doc:"Number of copies"`
	Probe        Probe             `json:"probe,omitzero" doc:"How the gateway checks the health of a copy"`
	ForceReplace bool              `json:"forceReplace,omitempty" doc:"Replace what runs even if nothing changed"`
}

// Scale bounds the number of copies; Min 0 and Max 0 mean one.
type Scale struct {
	Min int `json:"min,omitempty" minimum:"0" maximum:"100"`
	Max int `json:"max,omitempty" minimum:"0" maximum:"100"`
}

// Types of probes.
const (
	ProbeHTTP = "http"
	ProbeTCP  = "tcp"
)

// ProbeTypes are the types of probes. Each gateway has a way to probe each of them (providers/process/probe.go,
// providers/knative/render.go): their tests find the one that has none.
var ProbeTypes = []string{ProbeHTTP, ProbeTCP}

// Probe asks a copy for its health.
type Probe struct {
	Type           string `json:"type,omitempty" enum:"http,tcp" doc:"http (default) or tcp"`
	Path           string `json:"path,omitempty" maxLength:"1024" doc:"Path of the HTTP probe; / by default"`
	PeriodMillis   int    `json:"periodMillis,omitempty" minimum:"0" maximum:"3600000" doc:"Milliseconds between probes; 1000 by default"`
	TimeoutMillis  int    `json:"timeoutMillis,omitempty" minimum:"0" maximum:"600000" doc:"Timeout of a probe in milliseconds; 1000 by default"`
	Failures       int    `json:"failures,omitempty" minimum:"0" maximum:"1000" doc:"Consecutive failures that make it unhealthy; 3 by default"`
	StartupSeconds int    `json:"startupSeconds,omitempty" minimum:"0" maximum:"3600" doc:"Seconds that a new revision has to become healthy; 30 by default"`
}

// Kind is the type of the probe; [ProbeHTTP] where none is given.
func (p *Probe) Kind() string { return cmp.Or(p.Type, ProbeHTTP) }

// Policy is how patient and how strict the control plane is with one service.
type Policy struct {
	FailureThreshold        int    `json:"failureThreshold,omitempty" minimum:"0" maximum:"1000" doc:"Consecutive observations with Ready=False that make it FAILED while it converges, if the reason is not terminal; 3 by default"`
	DegradeThreshold        int    `json:"degradeThreshold,omitempty" minimum:"0" maximum:"1000" doc:"Consecutive observations with Ready=False that make a READY service FAILED; 3 by default"`
	ProgressDeadlineSeconds int    `json:"progressDeadlineSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds that a change may take to converge; 600 by default, as in Knative"`
	DeleteDeadlineSeconds   int    `json:"deleteDeadlineSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Seconds after which a deletion is stalled; 120 by default"`
	Drift                   string `json:"drift,omitempty" enum:"report,reapply" doc:"What to do when the object differs from the spec: report (default) or reapply"`
}

// Data is what a service entity keeps.
type Data struct {
	Spec       *Spec     `json:"spec,omitempty"`
	Policy     Policy    `json:"policy,omitzero"`
	SpecHash   string    `json:"specHash,omitempty"` // of Spec without ForceReplace: what must be observed
	UID        string    `json:"uid,omitempty"`      // of this life of the id, chosen at creation
	Applied    *Applied  `json:"applied,omitempty"`
	Converged  *Accepted `json:"converged,omitempty"` // the last spec that was READY
	Previous   *Accepted `json:"previous,omitempty"`  // the one that was READY before it: rollback goes to the one of them that is not wanted now
	Snapshot   *Snapshot `json:"snapshot,omitempty"`
	ObservedAt time.Time `json:"observedAt,omitzero"`
	Failures   int       `json:"failures,omitempty"` // Ready=False in a row that counted
	Drift      string    `json:"drift,omitempty"`    // a hash of the difference that was told last
}

// Accepted is a specification at the generation that it had.
type Accepted struct {
	Spec       *Spec     `json:"spec,omitempty"` // absent of [Data.Converged] while it is that of the data
	Hash       string    `json:"hash"`
	Generation uint64    `json:"generation"`
	At         time.Time `json:"at"`
}

// Applied is what the gateway said when it took a specification.
type Applied struct {
	UID             string    `json:"uid"`             // of the object in the gateway
	Generation      int64     `json:"generation"`      // of the object in the gateway
	ResourceVersion string    `json:"resourceVersion"` // opaque
	Hash            string    `json:"hash"`
	At              time.Time `json:"at,omitzero"` // set by the machine
}

// Observation is what a gateway sees of a service: the evidence of every decision. A gateway fills it without
// judging; Snapshot is the part that is compared and kept.
type Observation struct {
	Snapshot
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	At              time.Time `json:"at,omitzero"`
}

// Snapshot is an observation without what changes by itself: two equal ones are no meaningful change.
type Snapshot struct {
	Exists             bool                 `json:"exists"`
	UID                string               `json:"uid,omitempty"`
	Generation         int64                `json:"generation,omitempty"`
	ObservedGeneration int64                `json:"observedGeneration,omitempty"`
	SpecHash           string               `json:"specHash,omitempty"` // the annotation that apply wrote
	Ready              machines.Status      `json:"ready,omitempty"`    // empty counts as Unknown
	Reason             string               `json:"reason,omitempty"`
	Message            string               `json:"message,omitempty"`
	Conditions         []ObservedCondition  `json:"conditions,omitempty"` // ConfigurationsReady, RoutesReady, ...
	URL                string               `json:"url,omitempty"`
	LatestCreated      string               `json:"latestCreated,omitempty"` // revision
	LatestReady        string               `json:"latestReady,omitempty"`   // revision
	Serving            string               `json:"serving,omitempty"`       // revision that gets the traffic
	Traffic            []Traffic            `json:"traffic,omitempty"`
	Revisions          []ObservedRevision   `json:"revisions,omitempty"`
	Route              machines.Status      `json:"route,omitempty"`  // what a probe through the route found
	Fields             map[string]FieldDiff `json:"fields,omitempty"` // how the object differs from what was applied
}

// ObservedCondition is a condition of the object in the gateway.
type ObservedCondition struct {
	Type    string          `json:"type"`
	Status  machines.Status `json:"status"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}

// Traffic is the share that one revision gets.
type Traffic struct {
	Revision string `json:"revision"`
	Percent  int    `json:"percent"`
}

// ObservedRevision is one revision that the gateway has.
type ObservedRevision struct {
	Name   string          `json:"name"`
	Hash   string          `json:"hash,omitempty"`
	Ready  machines.Status `json:"ready,omitempty"`
	Reason string          `json:"reason,omitempty"`
}

// FieldDiff is one field that drifted.
type FieldDiff struct {
	Want string `json:"want"`
	Got  string `json:"got"`
}

// ApplyTask is the data of the effect apply.
type ApplyTask struct {
	UID        string `json:"uid"` // of this life of the id
	Generation uint64 `json:"generation"`
	Hash       string `json:"hash"`
	Spec       *Spec  `json:"spec"`
}

// DeleteTask is the data of the effect delete.
type DeleteTask struct {
	UID string `json:"uid"`
}

// ObserveTask is the data of the effect observe.
type ObserveTask struct {
	UID  string `json:"uid"`
	Hash string `json:"hash"`
}

// Conditions of a service.
const (
	Available       = "Ready"           // READY is True, FAILED and what ends is False, what is under way is Unknown
	Degraded        = "Degraded"        // READY, but seen not to be
	Drifted         = "Drifted"         // the object differs from the specification
	Replaced        = "Replaced"        // others made the object anew
	Observed        = "Observed"        // whether the gateway could be looked at
	DeletionStalled = "DeletionStalled" // the deletion does not come to its end
)

// The values of Policy.Drift; empty is report.
const (
	DriftReport  = "report"
	DriftReapply = "reapply"
)

// Codes of the failures that the machine itself finds.
const (
	FailureDeadline  = "ProgressDeadlineExceeded"
	FailureUnready   = "NotReady" // without a reason of the gateway's
	FailureDegraded  = "Degraded"
	FailureDeleting  = "DeleteDeadlineExceeded"
	ReasonNotFound   = "NotFound"
	ReasonRouteProbe = "RouteProbeFailed"
)

// Reasons of the failed kind: one observation of Ready=False with one of them and the current generation is enough,
// because the gateway says that it has given up on the revision.
const (
	ReasonRevisionFailed   = "RevisionFailed"
	ReasonContainerMissing = "ContainerMissing"
	ReasonInvalid          = "Invalid"
	ReasonExited           = "ExitCode"
	ReasonProbeFailed      = "ProgressDeadlineExceeded"
)

// CreateBody is the body of create: HTTP body, command payload and stored data alike.
type CreateBody struct {
	Spec   Spec              `json:"spec" doc:"Specification"`
	Policy *Policy           `json:"policy,omitempty" doc:"Thresholds and deadlines of this service"`
	Labels map[string]string `json:"labels,omitempty" doc:"For filters; keys and values as in Kubernetes"`
}

// UpdateBody is the body of update.
type UpdateBody struct {
	Spec      Spec              `json:"spec" doc:"New specification"`
	Policy    *Policy           `json:"policy,omitempty" doc:"Replaces the policy; the old one stays when absent"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Replaces the labels; the old ones stay when absent"`
	Supersede bool              `json:"supersede,omitempty" doc:"Also in CREATING and UPDATING: the new spec replaces the one in progress"`
}

// PurgeBody is the body of purge.
type PurgeBody struct {
	Force bool `json:"force" doc:"Must be true: the service is deleted even if the gateway still runs it"`
}

// LabelBody is the body of label.
type LabelBody struct {
	Labels map[string]string `json:"labels" doc:"Replaces all labels"`
}
