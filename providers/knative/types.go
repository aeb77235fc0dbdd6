package knative

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bcc94042/instar/machines"
)

// resource is what this gateway reads and writes.
var resource = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}

// secrets are what it gives releases of tenants, and marks the tenants by.
var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// manager is the name under which fields are owned.
const manager = "instar"

// Marks on objects.
const (
	labelManaged   = "app.kubernetes.io/managed-by"
	labelOwner     = "instar/owner"
	labelNamespace = "instar/namespace" // of the service; that of the object may be another

	markHash       = "instar/spec-hash"
	markLife       = "instar/life"
	markAttempt    = "instar/attempt"
	markFence      = "instar/fence"
	markFields     = "instar/applied"    // what was applied, by field
	markAddress    = "instar/address"    // that was told of a release
	markGeneration = "instar/generation" // of the entity; in the template, the one that asked for the revision

	minScale         = "autoscaling.knative.dev/min-scale"
	maxScale         = "autoscaling.knative.dev/max-scale"
	progressDeadline = "serving.knative.dev/progress-deadline"
)

// object is the part of a Knative Service that this gateway writes and reads.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
	Status     status   `json:"status,omitzero"`
}

type metadata struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Generation        int64             `json:"generation,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	OwnerReferences   []ownedBy         `json:"ownerReferences,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// ownedBy is an object with which this one goes, and which waits for that.
type ownedBy struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	Name               string `json:"name"`
	UID                string `json:"uid"`
	BlockOwnerDeletion bool   `json:"blockOwnerDeletion"`
}

// secret is the part of a Secret that this gateway writes and reads.
type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string][]byte `json:"data,omitempty"`
}

type spec struct {
	Template template `json:"template"`
}

type template struct {
	Metadata templateMetadata `json:"metadata"`
	Spec     revisionSpec     `json:"spec"`
}

type templateMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}

type revisionSpec struct {
	Containers     []container `json:"containers"`
	Volumes        []volume    `json:"volumes,omitempty"`
	AutomountToken *bool       `json:"automountServiceAccountToken,omitempty"`
}

type container struct {
	Image          string     `json:"image"`
	Args           []string   `json:"args,omitempty"`
	Env            []variable `json:"env,omitempty"`
	Ports          []port     `json:"ports,omitempty"`
	ReadinessProbe *readiness `json:"readinessProbe,omitempty"`
	Resources      resources  `json:"resources,omitzero"`
	VolumeMounts   []mount    `json:"volumeMounts,omitempty"`
	Security       *security  `json:"securityContext,omitempty"`
}

type resources struct {
	Limits map[string]string `json:"limits,omitempty"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly"`
}

type security struct {
	AllowPrivilegeEscalation bool         `json:"allowPrivilegeEscalation"`
	Capabilities             capabilities `json:"capabilities"`
}

type capabilities struct {
	Drop []string `json:"drop"`
}

type volume struct {
	Name   string     `json:"name"`
	Secret fromSecret `json:"secret"`
}

type fromSecret struct {
	SecretName string `json:"secretName"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
}

type port struct {
	ContainerPort int64 `json:"containerPort"`
}

// readiness has no port: Knative fills in that of the container.
type readiness struct {
	HTTPGet          *httpGet  `json:"httpGet,omitempty"`
	TCPSocket        *struct{} `json:"tcpSocket,omitempty"`
	PeriodSeconds    int64     `json:"periodSeconds,omitempty"`
	TimeoutSeconds   int64     `json:"timeoutSeconds,omitempty"`
	FailureThreshold int64     `json:"failureThreshold,omitempty"`
}

type httpGet struct {
	Path string `json:"path,omitempty"`
}

type status struct {
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
	URL                string      `json:"url,omitempty"`
	LatestCreated      string      `json:"latestCreatedRevisionName,omitempty"`
	LatestReady        string      `json:"latestReadyRevisionName,omitempty"`
	Traffic            []traffic   `json:"traffic,omitempty"`
	Conditions         []condition `json:"conditions,omitempty"`
}

type traffic struct {
	RevisionName string `json:"revisionName,omitempty"`
	Percent      int64  `json:"percent,omitempty"`
}

type condition struct {
	Type    string          `json:"type"`
	Status  machines.Status `json:"status"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message,omitempty"`
}
