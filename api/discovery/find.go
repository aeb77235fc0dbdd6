package discovery

import "time"

// Endpoint is an instance as discovery answers it.
type Endpoint struct {
	Namespace   string            `json:"-"`
	Service     string            `json:"-"`
	InstanceID  string            `json:"instanceId"`
	NodeAddress string            `json:"nodeAddress"` // host:port
	Payload     map[string]string `json:"payload"`
	Zone        string            `json:"zone,omitempty"`
	Version     string            `json:"version,omitempty"`
	Tags        []string          `json:"tags,omitempty"`
	Weight      int               `json:"weight"` // effective now: warm-up, suspicion and an administrator's word included
	State       string            `json:"state"`
	Generation  uint64            `json:"generation"`
	Revision    uint64            `json:"revision"` // of its value
	Since       time.Time         `json:"since"`    // when it entered its state
}

// Query asks for instances of one service. What is set must match.
type Query struct {
	Namespace string
	Service   string
	Draining  bool // also those that end
	Zone      string
	Version   string
	Tags      []string          // all of them
	Meta      map[string]string // of the payload
	Prefer    string            // a zone: those of other zones only when it has none
	Choose    int               // so many, by weight; with Key by rendezvous hashing, else at random; 0 is all
	Key       string
}

// Result is an answer.
type Result struct {
	Endpoints []Endpoint // in the order of their ids, or of choice
	Index     uint64     // revision of the bucket up to which every change is in the answer
	Changed   uint64     // revision of the last change of this service: what a blocking read waits for
	Protected bool       // the service is in self-preservation: what is answered may be gone
	Known     bool       // the service has or had instances

	whole *Snapshot // whose Found are the endpoints; nil where they are others
}

// Finder answers queries from memory. It is safe for concurrent use and never blocks on the network.
type Finder interface {
	Find(q Query) Result
	// Watch returns a channel that is closed when the service's Changed moves beyond after.
	Watch(namespace, service string, after uint64) <-chan struct{}
	// Inhabited says whether a namespace has services that have or had instances.
	Inhabited(namespace string) bool
}
