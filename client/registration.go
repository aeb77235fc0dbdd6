package client

import "time"

// Kinds of checks that can be registered with this client. A registry has more.
const (
	CheckTTL  = "ttl"  // the lease's heartbeats; the default
	CheckNone = "none" // healthy while registered
	CheckHTTP = "http" // the others are probed by the registry
	CheckTCP  = "tcp"
	CheckGRPC = "grpc"
)

// Registration is an instance as it is registered. Times are rounded as the registry does.
type Registration struct {
	Service     string // a DNS label
	NodeAddress string // host:port that others connect to
	InstanceID  string // by default it follows from Service and NodeAddress, so a restarted process is the same instance
	Payload     map[string]string
	Zone        string
	Version     string
	Tags        []string
	Weight      *int // part of the traffic; 100 by default
	Check       Check
	Policy      Policy
}

// Check says how the registry learns that the instance is healthy. What is zero has the registry's default.
type Check struct {
	Type        string        // CheckTTL by default
	TTL         time.Duration // ttl: silent for longer, it is suspect; 15 s by default
	Grace       time.Duration // ttl: suspect for longer, it is unhealthy; half the TTL by default
	Interval    time.Duration // between probes; 5 s by default
	Timeout     time.Duration // of a probe; 2 s by default
	Path        string        // http: / by default
	HTTPVersion string        // http: "2" where the server speaks nothing else; by default TLS negotiates it
	Port        int           // to probe when it is not the one of NodeAddress
	TLS         bool
	GRPCService string
}

// Policy holds the thresholds of the instance. What is zero has the registry's default.
type Policy struct {
	Rise, Fall              int           // results in a row that make it healthy or unhealthy
	MaxFailures             int           // failures in a row that deregister it
	Warmup                  time.Duration // over which its weight grows
	Drain                   time.Duration // hard deadline of a drain; 10 s by default
	DeregisterCriticalAfter time.Duration
	NoFlap                  bool // never hold it down for changing too often
}

const defaultTTL = 15 * time.Second

func (r *Registration) ttl() time.Duration {
	if r.Check.TTL > 0 {
		return r.Check.TTL
	}
	return defaultTTL
}

// wire is the body of the request.
func (r *Registration) wire(namespace string) map[string]any {
	kind := r.Check.Type
	if kind == "" {
		kind = CheckTTL
	}
	check := set{"type": kind}
	check.add("ttl", r.Check.TTL).add("grace", r.Check.Grace).add("interval", r.Check.Interval).add("timeout", r.Check.Timeout)
	check.add("path", r.Check.Path).add("httpVersion", r.Check.HTTPVersion).add("port", r.Check.Port).add("tls", r.Check.TLS).add("grpcService", r.Check.GRPCService)
	p := set{}
	p.add("rise", r.Policy.Rise).add("fall", r.Policy.Fall).add("maxFailures", r.Policy.MaxFailures).add("warmup", r.Policy.Warmup)
	p.add("drain", r.Policy.Drain).add("deregisterCriticalAfter", r.Policy.DeregisterCriticalAfter).add("noFlap", r.Policy.NoFlap)
	body := set{"serviceName": r.Service, "nodeAddress": r.NodeAddress, "namespace": namespace, "check": check}
	body.add("instanceId", r.InstanceID).add("zone", r.Zone).add("version", r.Version)
	if len(r.Payload) > 0 {
		body["payload"] = r.Payload
	}
	if len(r.Tags) > 0 {
		body["tags"] = r.Tags
	}
	if r.Weight != nil {
		body["weight"] = *r.Weight
	}
	if len(p) > 0 {
		body["policy"] = p
	}
	return body
}

// set is an object of which only what is set is sent.
type set map[string]any

func (s set) add(name string, v any) set {
	switch v := v.(type) {
	case time.Duration:
		if v != 0 {
			s[name] = v.String()
		}
	case string:
		if v != "" {
			s[name] = v
		}
	case int:
		if v != 0 {
			s[name] = v
		}
	case bool:
		if v {
			s[name] = v
		}
	}
	return s
}
