package domain

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
)

// Data is what a domain keeps.
type Data struct {
	Host        string       `json:"host,omitempty"`
	Route       Route        `json:"route,omitzero"`
	Token       string       `json:"token,omitempty"`       // of this life, in its TXT record
	Records     []Record     `json:"records,omitempty"`     // that whoever owns the name makes, and has made if there is no problem
	Problem     string       `json:"problem,omitempty"`     // of the records, or of the renewal
	Certificate *Certificate `json:"certificate,omitempty"` // that is served
	FailedFrom  string       `json:"failedFrom,omitempty"`
	Closed      bool         `json:"closed,omitempty"`   // its requests are not to be served
	Detached    bool         `json:"detached,omitempty"` // it is no instance's any more, whoever has bound it
}

// Route is where the requests of a name go.
type Route struct {
	Targets []Target `json:"targets" minItems:"1" maxItems:"16" doc:"Where requests go, by weight"`
	Health  Health   `json:"health,omitzero" doc:"Which targets are asked; without a path all are taken for healthy until they refuse connections"`
}

// Target is one server of the tenant's application, over HTTP.
type Target struct {
	Address string `json:"address" maxLength:"300" example:"10.0.0.7:8080" doc:"host:port"`
	Weight  int    `json:"weight,omitempty" minimum:"0" maximum:"1000" doc:"Share of the requests, relative to the other targets; 0 takes no new ones, unless it is so of all: then each has the same share"`
	OwnHost bool   `json:"ownHost,omitempty" doc:"It gets requests with the host of its address, as a server of many names needs, in place of the one that was asked for, which is in X-Forwarded-Host"`
}

// Health is how a target is checked.
type Health struct {
	Path          string `json:"path,omitempty" maxLength:"512" example:"/health" doc:"Answers with a status below 400 when the target is healthy"`
	EverySeconds  int    `json:"everySeconds,omitempty" minimum:"0" maximum:"3600" doc:"0 is 10"`
	WithinSeconds int    `json:"withinSeconds,omitempty" minimum:"0" maximum:"60" doc:"0 is 2"`
}

// OwnLabels begins the keys of labels that only the server sets.
const OwnLabels = "instar/"

// BindBody is the body of bind.
type BindBody struct {
	Host   string            `json:"host" maxLength:"253" example:"shop.example.com" doc:"The name, in ASCII (internationalised ones in their xn-- form)"`
	Route  Route             `json:"route"`
	Labels map[string]string `json:"labels,omitempty" maxProperties:"32"`
}

// RetargetBody is the body of retarget.
type RetargetBody struct {
	Route  Route `json:"route"`
	Detach bool  `json:"detach,omitempty" doc:"From now on it is no instance's: none leads it elsewhere, or removes it"`
}

// Record is one that DNS needs.
type Record struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// Records is the body of found and missing.
type Records struct {
	Wanted  []Record `json:"wanted,omitempty"`
	Problem string   `json:"problem,omitempty"`
}

// Certificate is what is known of one; its key is nowhere but in the sealed bucket.
type Certificate struct {
	Issuer    string    `json:"issuer,omitempty"`
	Serial    string    `json:"serial,omitempty"` // in hexadecimal
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
}

// Trouble is the body of not-renewed and lapsed.
type Trouble struct {
	Message string `json:"message,omitempty"`
}

// Task is what the provider is told.
type Task struct {
	Host   string `json:"host"`
	Token  string `json:"token"`
	Route  Route  `json:"route,omitzero"`
	Closed bool   `json:"closed,omitempty"` // send its requests nowhere
}

// CodeRecords is the code of a failure to verify because the records are not there any more.
const CodeRecords = "DNS_RECORDS_MISSING"

// Validate checks what the types cannot say.
func (b *BindBody) Validate() *machines.Refusal {
	var f machines.Findings
	checkHost(&f, b.Host)
	b.Route.check(&f)
	f.Labels(b.Labels, 32)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *RetargetBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.Route.check(&f)
	return f.Refusal()
}

var hostForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkHost(f *machines.Findings, host string) {
	switch {
	case len(host) > 253-len(recordUnder):
		f.Add("host", "is longer than %d characters", 253-len(recordUnder))
	case strings.HasPrefix(host, "*."):
		f.Add("host", "is a wildcard; bind each name by itself")
	case !hostForm.MatchString(host):
		f.Add("host", "is not a domain name in lower case, such as shop.example.com")
	}
}

func (r *Route) check(f *machines.Findings) {
	if len(r.Targets) < 1 || len(r.Targets) > 16 {
		f.Add("route.targets", "needs 1 to 16 targets")
		return
	}
	seen := map[string]bool{}
	for i, t := range r.Targets {
		at := "route.targets[" + strconv.Itoa(i) + "]."
		if _, _, err := instance.SplitAddress(t.Address); err != nil {
			f.Add(at+"address", "%s", err)
		} else if seen[t.Address] {
			f.Add(at+"address", "is there twice")
		}
		seen[t.Address] = true
		f.Between(at+"weight", t.Weight, 0, 1000)
	}
	h := r.Health
	if p := h.Path; p != "" && (!strings.HasPrefix(p, "/") || len(p) > 512 || strings.ContainsFunc(p, func(r rune) bool { return r <= ' ' || r > '~' })) {
		f.Add("route.health.path", "is not a path, such as /health")
	}
	f.Between("route.health.everySeconds", h.EverySeconds, 0, 3600)
	f.Between("route.health.withinSeconds", h.WithinSeconds, 0, 60)
}

// recordUnder is the label under which the TXT record of a name is.
const recordUnder = "_instar."

// Proof is the TXT record that proves a name for whoever has the token.
func Proof(host, token string) Record {
	return Record{Name: recordUnder + host, Type: "TXT", Value: "instar-domain=" + token}
}
