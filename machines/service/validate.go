package service

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bcc94042/instar/machines"
)

// Bounds that no tag of a field can say.
const (
	maxLabels   = 64
	maxEnv      = 256
	maxEnvName  = 256
	maxSpecSize = 64 << 10 // as JSON: an entity holds up to three specifications in one message
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// findings collects what is wrong with a body.
type findings struct{ machines.Findings }

// text refuses what is too long, and NUL: Postgres, environments and argument lists cannot hold it.
func (f *findings) text(field, v string, longest int) {
	if len(v) > longest {
		f.Add(field, "is longer than %d bytes", longest)
	}
	if strings.ContainsRune(v, 0) {
		f.Add(field, "contains a NUL byte")
	}
}

// Validate checks what the types cannot say.
func (b *CreateBody) Validate() *machines.Refusal {
	var f findings
	f.spec(&b.Spec)
	f.policy(b.Policy)
	f.Labels(b.Labels, maxLabels)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *UpdateBody) Validate() *machines.Refusal {
	var f findings
	f.spec(&b.Spec)
	f.policy(b.Policy)
	f.Labels(b.Labels, maxLabels)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *LabelBody) Validate() *machines.Refusal {
	var f findings
	f.Labels(b.Labels, maxLabels)
	return f.Refusal()
}

// Validate refuses a status of a fourth kind: it would count as none of the three.
func (o *Observation) Validate() *machines.Refusal {
	var f findings
	f.status("ready", o.Ready)
	f.status("route", o.Route)
	for i, c := range o.Conditions {
		f.status(fmt.Sprintf("conditions[%d].status", i), c.Status)
	}
	for i, r := range o.Revisions {
		f.status(fmt.Sprintf("revisions[%d].ready", i), r.Ready)
	}
	return f.Refusal()
}

func (f *findings) status(field string, s machines.Status) {
	if !slices.Contains([]machines.Status{"", machines.True, machines.False, machines.Unknown}, s) {
		f.Add(field, "is not True, False or Unknown")
	}
}

func (f *findings) spec(s *Spec) {
	f.text("spec.image", s.Image, 512)
	if s.Image == "" {
		f.Add("spec.image", "is required")
	} else if strings.ContainsAny(s.Image, " \t\r\n") {
		f.Add("spec.image", "contains white space")
	}
	f.Between("spec.port", s.Port, 0, 65535)
	f.Between("spec.scale.min", s.Scale.Min, 0, 100)
	f.Between("spec.scale.max", s.Scale.Max, 0, 100)
	if s.Scale.Min > s.Scale.Max {
		f.Add("spec.scale", "min is greater than max")
	}
	f.probe(&s.Probe)
	f.env(s.Env)
	if raw, err := json.Marshal(s); err != nil || len(raw) > maxSpecSize {
		f.Add("spec", "is larger than %d bytes", maxSpecSize)
	}
}

func (f *findings) probe(p *Probe) {
	if !slices.Contains(ProbeTypes, p.Kind()) {
		f.Add("spec.probe.type", "is not one of %s", strings.Join(ProbeTypes, ", "))
	}
	f.text("spec.probe.path", p.Path, 1024)
	if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
		f.Add("spec.probe.path", "does not begin with /")
	}
	if strings.ContainsAny(p.Path, " \t\r\n") {
		f.Add("spec.probe.path", "contains white space")
	}
	f.Between("spec.probe.periodMillis", p.PeriodMillis, 0, 3_600_000)
	f.Between("spec.probe.timeoutMillis", p.TimeoutMillis, 0, 600_000)
	f.Between("spec.probe.failures", p.Failures, 0, 1000)
	f.Between("spec.probe.startupSeconds", p.StartupSeconds, 0, 3600)
}

func (f *findings) env(env map[string]string) {
	if len(env) > maxEnv {
		f.Add("spec.env", "has more than %d names", maxEnv)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !envName.MatchString(name) || len(name) > maxEnvName {
			f.Add("spec.env", "%q is not a name of at most %d letters, digits and _ that begins with none of the digits", name, maxEnvName)
		}
		if strings.ContainsRune(env[name], 0) {
			f.Add("spec.env."+name, "contains a NUL byte")
		}
	}
}

func (f *findings) policy(p *Policy) {
	if p == nil {
		return
	}
	f.Between("policy.failureThreshold", p.FailureThreshold, 0, 1000)
	f.Between("policy.degradeThreshold", p.DegradeThreshold, 0, 1000)
	f.Between("policy.progressDeadlineSeconds", p.ProgressDeadlineSeconds, 0, 86400)
	f.Between("policy.deleteDeadlineSeconds", p.DeleteDeadlineSeconds, 0, 86400)
	if !slices.Contains([]string{"", DriftReport, DriftReapply}, p.Drift) {
		f.Add("policy.drift", "is not report or reapply")
	}
}
