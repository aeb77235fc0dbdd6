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

var (
	envName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelSpace = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
)

// findings collects what is wrong with a body.
type findings []machines.FieldError

func (f *findings) add(field, format string, args ...any) {
	*f = append(*f, machines.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (f *findings) between(field string, v, low, high int) {
	if v < low || v > high {
		f.add(field, "must be from %d to %d", low, high)
	}
}

// text refuses what is too long, and NUL: Postgres, environments and argument lists cannot hold it.
func (f *findings) text(field, v string, longest int) {
	if len(v) > longest {
		f.add(field, "is longer than %d bytes", longest)
	}
	if strings.ContainsRune(v, 0) {
		f.add(field, "contains a NUL byte")
	}
}

func (f *findings) refusal() *machines.Refusal {
	if len(*f) == 0 {
		return nil
	}
	return machines.Invalid(*f...)
}

// Validate checks what the types cannot say.
func (b *CreateBody) Validate() *machines.Refusal {
	var f findings
	f.spec(&b.Spec)
	f.policy(b.Policy)
	f.labels(b.Labels)
	return f.refusal()
}

// Validate checks what the types cannot say.
func (b *UpdateBody) Validate() *machines.Refusal {
	var f findings
	f.spec(&b.Spec)
	f.policy(b.Policy)
	f.labels(b.Labels)
	return f.refusal()
}

// Validate checks what the types cannot say.
func (b *LabelBody) Validate() *machines.Refusal {
	var f findings
	f.labels(b.Labels)
	return f.refusal()
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
	return f.refusal()
}

func (f *findings) status(field string, s machines.Status) {
	if !slices.Contains([]machines.Status{"", machines.True, machines.False, machines.Unknown}, s) {
		f.add(field, "is not True, False or Unknown")
	}
}

func (f *findings) spec(s *Spec) {
	f.text("spec.image", s.Image, 512)
	if s.Image == "" {
		f.add("spec.image", "is required")
	} else if strings.ContainsAny(s.Image, " \t\r\n") {
		f.add("spec.image", "contains white space")
	}
	f.between("spec.port", s.Port, 0, 65535)
	f.between("spec.scale.min", s.Scale.Min, 0, 100)
	f.between("spec.scale.max", s.Scale.Max, 0, 100)
	if s.Scale.Min > s.Scale.Max {
		f.add("spec.scale", "min is greater than max")
	}
	f.probe(&s.Probe)
	f.env(s.Env)
	if raw, err := json.Marshal(s); err != nil || len(raw) > maxSpecSize {
		f.add("spec", "is larger than %d bytes", maxSpecSize)
	}
}

func (f *findings) probe(p *Probe) {
	if !slices.Contains([]string{"", "http", "tcp"}, p.Type) {
		f.add("spec.probe.type", "is not http or tcp")
	}
	f.text("spec.probe.path", p.Path, 1024)
	if p.Path != "" && !strings.HasPrefix(p.Path, "/") {
		f.add("spec.probe.path", "does not begin with /")
	}
	if strings.ContainsAny(p.Path, " \t\r\n") {
		f.add("spec.probe.path", "contains white space")
	}
	f.between("spec.probe.periodMillis", p.PeriodMillis, 0, 3_600_000)
	f.between("spec.probe.timeoutMillis", p.TimeoutMillis, 0, 600_000)
	f.between("spec.probe.failures", p.Failures, 0, 1000)
	f.between("spec.probe.startupSeconds", p.StartupSeconds, 0, 3600)
}

func (f *findings) env(env map[string]string) {
	if len(env) > maxEnv {
		f.add("spec.env", "has more than %d names", maxEnv)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !envName.MatchString(name) || len(name) > maxEnvName {
			f.add("spec.env", "%q is not a name of at most %d letters, digits and _ that begins with none of the digits", name, maxEnvName)
		}
		if strings.ContainsRune(env[name], 0) {
			f.add("spec.env."+name, "contains a NUL byte")
		}
	}
}

func (f *findings) policy(p *Policy) {
	if p == nil {
		return
	}
	f.between("policy.failureThreshold", p.FailureThreshold, 0, 1000)
	f.between("policy.degradeThreshold", p.DegradeThreshold, 0, 1000)
	f.between("policy.progressDeadlineSeconds", p.ProgressDeadlineSeconds, 0, 86400)
	f.between("policy.deleteDeadlineSeconds", p.DeleteDeadlineSeconds, 0, 86400)
	if !slices.Contains([]string{"", DriftReport, DriftReapply}, p.Drift) {
		f.add("policy.drift", "is not report or reapply")
	}
}

// labels follow the syntax of Kubernetes: [prefix/]name, at most 63 characters of name and of value.
func (f *findings) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		f.add("labels", "has more than %d labels", maxLabels)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, name, prefixed := strings.Cut(key, "/")
		if !prefixed {
			name = key
		}
		if !labelName.MatchString(name) || prefixed && (len(prefix) > 253 || !labelSpace.MatchString(prefix)) {
			f.add("labels", "%q is not a Kubernetes label key", key)
		}
		if v := labels[key]; v != "" && !labelName.MatchString(v) {
			f.add("labels."+key, "is not a Kubernetes label value")
		}
	}
}
