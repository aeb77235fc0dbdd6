package instance

import "time"

// Data is what an instance keeps: the registration as it was accepted, and what its checks have led to.
type Data struct {
	NodeAddress string            `json:"nodeAddress"` // host:port
	Payload     map[string]string `json:"payload,omitempty"`
	Zone        string            `json:"zone,omitempty"`
	Version     string            `json:"version,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Weight      int               `json:"weight"` // as registered; 100 by default
	Terms

	Retries     int          `json:"healthCheckRetries"` // failures in a row that were reported
	Evidence    *Evidence    `json:"evidence,omitempty"` // what the last change was decided from
	Suspicion   *Suspicion   `json:"suspicion,omitempty"`
	Flap        *Flap        `json:"flap,omitempty"`
	Drain       *Drain       `json:"drain,omitempty"`
	Maintenance *Maintenance `json:"maintenance,omitempty"`
	Pinned      *int         `json:"pinned,omitempty"`    // an administrator's weight, instead of Weight
	Protected   bool         `json:"protected,omitempty"` // nothing expires: its service is in self-preservation

	RegisteredAt time.Time `json:"registeredAt,omitzero"`    // when this generation was registered
	AdmitUntil   time.Time `json:"admitUntil,omitzero"`      // the deadline for its owner to admit it; zero once that is done
	WarmSince    time.Time `json:"warmSince,omitzero"`       // when the warm-up began that is not over yet
	Overdue      time.Time `json:"overdue,omitzero"`         // since when it is deregistered as soon as somebody sees that it is gone
	Waits        int       `json:"waits,omitempty"`          // deadlines of the registration that passed while nobody looked at it
	Failing      []string  `json:"failing,omitempty"`        // of several observers, those that see it fall
	Passing      []string  `json:"passing,omitempty"`        // of several observers, those that see it rise while it is unhealthy
	Reported     *int      `json:"reportedWeight,omitempty"` // the instance's own word, instead of Weight
}

// Terms say how an instance is looked after. They come with its registration, and nothing changes them.
type Terms struct {
	Check  Check  `json:"check"`
	Policy Policy `json:"policy,omitzero"`
}

// Check says how the health of an instance is learned. Durations are as in Go: 500ms, 5s, 2m.
type Check struct {
	Type     string `json:"type" enum:"none,ttl,http,tcp,grpc,udp,alias,script" doc:"Type of the check; none by default: healthy while registered"`
	Interval string `json:"interval,omitempty" example:"5s" doc:"Time between probes; 5s by default, at least 100ms"`
	Timeout  string `json:"timeout,omitempty" example:"2s" doc:"Timeout of a probe; 2s by default"`
	TTL      string `json:"ttl,omitempty" example:"10s" doc:"ttl: silent for longer, the instance is suspect; 15s by default, at least 1s"`
	Grace    string `json:"grace,omitempty" example:"5s" doc:"ttl: suspect for longer, the instance is unhealthy; half the TTL by default"`

	Path        string            `json:"path,omitempty" maxLength:"2048" doc:"http: path and query; / by default"`
	Port        int               `json:"port,omitempty" minimum:"0" maximum:"65535" doc:"Port to probe, if not the one of nodeAddress"`
	Method      string            `json:"method,omitempty" enum:"GET,HEAD,POST,PUT,OPTIONS" doc:"http: GET by default"`
	Headers     map[string]string `json:"headers,omitempty" doc:"http: sent with each probe, up to 16 KiB in all; Host is honoured"`
	Body        string            `json:"body,omitempty" maxLength:"16384" doc:"http: body to send. udp: bytes to send"`
	Status      []int             `json:"status,omitempty" maxItems:"16" doc:"http: statuses that pass; any 2xx by default"`
	Match       string            `json:"match,omitempty" maxLength:"1024" doc:"http, udp: regular expression (RE2) that the first 64 KiB of the answer must match"`
	HTTPVersion string            `json:"httpVersion,omitempty" enum:"1.1,2" doc:"http: 2 for HTTP/2 only, with TLS or without (h2c, prior knowledge); 1.1 never uses HTTP/2. By default TLS negotiates the version, and without TLS it is 1.1"`
	TLS         bool              `json:"tls,omitempty" doc:"http, tcp, grpc: use TLS"`
	TLSInsecure bool              `json:"tlsInsecure,omitempty" doc:"Accept any certificate"`
	ServerName  string            `json:"serverName,omitempty" maxLength:"253" doc:"Name in the certificate, if not the host of nodeAddress"`
	GRPCService string            `json:"grpcService,omitempty" maxLength:"255" doc:"grpc: service name for grpc.health.v1; empty means the whole server"`
	Alias       string            `json:"alias,omitempty" maxLength:"127" doc:"alias: <service>/<instanceId> in the same namespace"`
	Command     []string          `json:"command,omitempty" maxItems:"32" doc:"script: program and arguments, up to 16 KiB in all"`
	Observers   int               `json:"observers,omitempty" minimum:"0" maximum:"9" doc:"Nodes that probe the instance; 1 by default. With several, k of them must agree before it is unhealthy"`
	Agree       int               `json:"agree,omitempty" minimum:"0" maximum:"9" doc:"k of the k-of-n observers; the majority by default"`
}

// Policy holds the thresholds of one instance. What is zero has its default.
type Policy struct {
	Rise                    int     `json:"rise,omitempty" minimum:"0" maximum:"100" doc:"Consecutive passes that make it healthy; 2 by default, 1 for ttl"`
	Fall                    int     `json:"fall,omitempty" minimum:"0" maximum:"100" doc:"Consecutive failures that make it unhealthy; 3 by default"`
	MaxFailures             int     `json:"maxFailures,omitempty" minimum:"0" maximum:"1000" doc:"Consecutive failures that deregister it; 0, the default, never does"`
	Warmup                  string  `json:"warmup,omitempty" example:"30s" doc:"Time in which the weight grows from a tenth; 0s by default"`
	Aggression              float64 `json:"aggression,omitempty" minimum:"0" maximum:"10" doc:"Exponent of the growth, as aggression in Envoy's slow start; 1 by default, linear"`
	SuspectMin              string  `json:"suspectMin,omitempty" doc:"Shortest suspect window; two intervals by default"`
	SuspectMax              string  `json:"suspectMax,omitempty" doc:"Longest suspect window; six times the shortest by default"`
	Drain                   string  `json:"drain,omitempty" example:"10s" doc:"Hard deadline of a graceful shutdown; 10s by default"`
	DeregisterCriticalAfter string  `json:"deregisterCriticalAfter,omitempty" doc:"Unhealthy for longer, the instance is deregistered after its owner has confirmed that; 30m by default for probes, never for ttl; 0s never"`
	FlapHigh                int     `json:"flapHigh,omitempty" minimum:"0" maximum:"100" doc:"Flap score in percent at which the instance is held down; 30 by default"`
	FlapLow                 int     `json:"flapLow,omitempty" minimum:"0" maximum:"100" doc:"Flap score in percent below which a held-down instance is released; 20 by default"`
	NoFlap                  bool    `json:"noFlap,omitempty" doc:"Never hold the instance down"`
}

// Evidence is what an observer saw.
type Evidence struct {
	Observer    string    `json:"observer,omitempty"`    // node that saw it, or the instance itself
	Kind        string    `json:"kind,omitempty"`        // type of the check
	Consecutive int       `json:"consecutive,omitempty"` // how often in a row, this time included
	Status      int       `json:"status,omitempty"`      // of HTTP
	Latency     float64   `json:"latencyMillis,omitempty"`
	Output      string    `json:"output,omitempty"` // at most 512 bytes
	At          time.Time `json:"at,omitzero"`
	Generation  uint64    `json:"generation,omitempty"` // of the registration that was looked at; 0 is any
	Observers   int       `json:"observers,omitempty"`  // that look at it now, when there are fewer than its check asks for; 0 is as many
	Weight      *int      `json:"weight,omitempty"`     // the instance's own word on its capacity
}

// Suspicion is kept while an instance is suspect.
type Suspicion struct {
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"` // nearer with each confirmation
	Reason    string    `json:"reason"`
	Confirmed []string  `json:"confirmed,omitempty"` // observers, other than the first
	Of        int       `json:"of"`                  // confirmations that make it unhealthy at once; 0 waits for Until
	By        string    `json:"by,omitempty"`
}

// Flap is kept from the first time that an instance was held down.
type Flap struct {
	Score float64   `json:"score"`          // percent, of the last 21 results, when it was told last
	Calm  bool      `json:"calm,omitempty"` // its results are steady again: it is let go at Until
	Holds int       `json:"holds"`          // how often it was held down in a row; forgotten after an hour without one
	Until time.Time `json:"until,omitzero"`
}

// Drain is kept while an instance ends.
type Drain struct {
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason,omitempty"`
	Early  string    `json:"early,omitempty"` // why it ended before Until
	From   string    `json:"from,omitempty"`  // the state in which it was asked to end
}

// Maintenance takes an instance out without ending it.
type Maintenance struct {
	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"` // zero has no end
	By     string    `json:"by,omitempty"`
}

// RegisterBody is what a registration says. Of a live instance it begins its next generation.
type RegisterBody struct {
	NodeAddress string            `json:"nodeAddress" minLength:"3" maxLength:"260" example:"10.0.0.7:8080" doc:"host:port that clients connect to"`
	Payload     map[string]string `json:"payload,omitempty" maxProperties:"64" doc:"Metadata that discovery returns"`
	Zone        string            `json:"zone,omitempty" maxLength:"63" doc:"Zone that it runs in; self-preservation counts per zone"`
	Version     string            `json:"version,omitempty" maxLength:"128"`
	Tags        []string          `json:"tags,omitempty" maxItems:"64"`
	Weight      *int              `json:"weight,omitempty" minimum:"0" maximum:"65535" doc:"Share of the traffic; 100 by default"`
	Check       Check             `json:"check,omitzero"`
	Policy      Policy            `json:"policy,omitzero"`
	Labels      map[string]string `json:"labels,omitempty" maxProperties:"32"`
}

// ShutdownBody begins a drain.
type ShutdownBody struct {
	Generation uint64 `json:"generation,omitempty" doc:"Refused if the instance has another one, so that an old process cannot end its successor"`
	Drain      string `json:"drain,omitempty" doc:"Deadline; overrides the policy's"`
}

// ForceBody ends an instance at once.
type ForceBody struct {
	Generation uint64 `json:"generation,omitempty" doc:"Refused if the instance has another one"`
}

// MaintenanceBody turns the maintenance flag on or off.
type MaintenanceBody struct {
	Enabled bool   `json:"enabled"`
	Reason  string `json:"reason,omitempty" maxLength:"512"`
	For     string `json:"for,omitempty" example:"1h" doc:"Duration after which it ends by itself"`
}

// PinBody sets an administrator's weight, or takes it away.
type PinBody struct {
	Weight *int `json:"weight,omitempty" minimum:"0" maximum:"65535" doc:"Omit it to return to the registered weight"`
}

// LabelBody replaces the labels.
type LabelBody struct {
	Labels map[string]string `json:"labels" maxProperties:"32"`
}

// FlapReport is the score of one that changes too often, or does so no longer.
type FlapReport struct {
	Score      float64 `json:"score"` // percent
	Generation uint64  `json:"generation,omitempty"`
	Last       bool    `json:"last,omitempty"` // clients find nobody else of its service: it is let go at once, whatever its score
}

// DrainReport says that nothing is sent to the instance any more.
type DrainReport struct {
	Watchers   int       `json:"watchers"` // that had confirmed the revision in which it began to drain
	Reason     string    `json:"reason"`
	Generation uint64    `json:"generation,omitempty"`
	Since      time.Time `json:"since,omitzero"` // of the drain that it is about; zero is any
}

// RefusalReport says why a registration is not admitted.
type RefusalReport struct {
	Reason     string `json:"reason"`
	Generation uint64 `json:"generation,omitempty"`
}

// Admission says that the record of a registration was read back.
type Admission struct {
	Generation uint64 `json:"generation,omitempty"` // that was read; 0 is any
	Revision   uint64 `json:"revision,omitempty"`   // of the value that was read

	// Passed is what was seen of it meanwhile, when that is enough to be found: then there is one change instead of two.
	Passed *Evidence `json:"passed,omitempty"`
}
