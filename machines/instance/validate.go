package instance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

// Bounds that no tag of a field can say.
const (
	maxPayload      = 16 << 10 // of all keys and values
	maxPayloadPairs = 64
	maxTexts        = 16 << 10 // of all headers, or all arguments, of a check: every node keeps them in memory
	maxTags         = 64
	maxTag          = 128
	maxLabels       = 32
	maxWeight       = 65535
	longest         = 24 * time.Hour
)

// findings collects what is wrong with a body.
type findings struct{ machines.Findings }

// span checks a duration; none is the default.
func (f *findings) span(field, text string, low, high time.Duration) {
	if text == "" {
		return
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		f.Add(field, "is not a duration such as 500ms, 5s or 2m")
	case d < low || d > high:
		f.Add(field, "must be from %s to %s", low, high)
	}
}

// text refuses what is too long, and control characters.
func (f *findings) text(field, v string, most int) {
	if len(v) > most {
		f.Add(field, "is longer than %d bytes", most)
	}
	if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		f.Add(field, "contains a control character")
	}
}

func (f *findings) oneOf(field, v string, all ...string) {
	if v != "" && !slices.Contains(all, v) {
		f.Add(field, "is not one of %s", strings.Join(all, ", "))
	}
}

func (f *findings) weight(field string, w *int) {
	if w != nil {
		f.Between(field, *w, 0, maxWeight)
	}
}

// Validate checks what the types cannot say.
func (b *RegisterBody) Validate() *machines.Refusal {
	var f findings
	if b.NodeAddress == "" {
		f.Add("nodeAddress", "is required")
	} else if _, _, err := SplitAddress(b.NodeAddress); err != nil {
		f.Add("nodeAddress", "%v", err)
	}
	f.payload(b.Payload)
	if b.Zone != "" && !machines.IsLabel(b.Zone) {
		f.Add("zone", "is not a DNS label of lower-case letters, digits and -")
	}
	f.text("version", b.Version, 128)
	f.tags(b.Tags)
	f.weight("weight", b.Weight)
	f.Labels(b.Labels, maxLabels)
	f.Under = "check."
	f.check(&b.Check)
	f.Under = "policy."
	f.policy(&b.Policy)
	return f.Refusal()
}

func (f *findings) payload(payload map[string]string) {
	if len(payload) > maxPayloadPairs {
		f.Add("payload", "has more than %d keys", maxPayloadPairs)
		return
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(payload)) {
		size += len(k) + len(payload[k])
		if k == "" {
			f.Add("payload", "has an empty key")
		}
		f.text("payload", k, 128)
		if strings.ContainsRune(payload[k], 0) {
			f.Add("payload."+k, "contains a NUL byte")
		}
	}
	if size > maxPayload {
		f.Add("payload", "is larger than %d bytes", maxPayload)
	}
}

func (f *findings) tags(tags []string) {
	if len(tags) > maxTags {
		f.Add("tags", "has more than %d", maxTags)
		return
	}
	for i, t := range tags {
		field := fmt.Sprintf("tags[%d]", i)
		f.text(field, t, maxTag)
		if t == "" || strings.ContainsAny(t, " ,") {
			f.Add(field, "is empty, or contains a blank or a comma")
		}
	}
}

// Validate checks what the types cannot say.
func (p *Policy) Validate() *machines.Refusal {
	var f findings
	f.policy(p)
	return f.Refusal()
}

func (f *findings) policy(p *Policy) {
	f.Between("rise", p.Rise, 0, 100)
	f.Between("fall", p.Fall, 0, 100)
	f.Between("maxFailures", p.MaxFailures, 0, 1000)
	f.span("warmup", p.Warmup, 0, longest)
	if !(p.Aggression >= 0 && p.Aggression <= 10) { // and what is no number
		f.Add("aggression", "must be from 0 to 10")
	}
	f.span("suspectMin", p.SuspectMin, 100*time.Millisecond, longest)
	f.span("suspectMax", p.SuspectMax, 100*time.Millisecond, longest)
	if p.SuspectMin != "" && p.SuspectMax != "" && duration(p.SuspectMax, 0) < duration(p.SuspectMin, 0) {
		f.Add("suspectMax", "is shorter than suspectMin")
	}
	f.span("drain", p.Drain, 0, longest)
	f.span("deregisterCriticalAfter", p.DeregisterCriticalAfter, 0, 365*longest)
	f.Between("flapHigh", p.FlapHigh, 0, 100)
	f.Between("flapLow", p.FlapLow, 0, 100)
	if d := (Terms{Policy: *p}); d.FlapLow() > d.FlapHigh() {
		f.Add("flapLow", "is greater than flapHigh (%g by now)", d.FlapHigh())
	}
}

// Validate checks what an observer says.
func (v *Evidence) Validate() *machines.Refusal {
	var f findings
	if v.Consecutive < 0 {
		f.Add("consecutive", "is negative")
	}
	if v.Observers < 0 {
		f.Add("observers", "is negative")
	}
	f.text("observer", v.Observer, 128)
	f.text("kind", v.Kind, 64)
	f.weight("weight", v.Weight)
	return f.Refusal()
}

// Validate checks what was seen meanwhile.
func (b *Admission) Validate() *machines.Refusal {
	if b.Passed == nil {
		return nil
	}
	return b.Passed.Validate()
}

// Validate checks the deadline.
func (b *ShutdownBody) Validate() *machines.Refusal {
	var f findings
	f.span("drain", b.Drain, 0, longest)
	return f.Refusal()
}

// Validate checks the time.
func (b *MaintenanceBody) Validate() *machines.Refusal {
	var f findings
	f.text("reason", b.Reason, 512)
	f.span("for", b.For, time.Second, 365*longest)
	if b.For != "" && !b.Enabled {
		f.Add("for", "is for a maintenance that is enabled")
	}
	return f.Refusal()
}

// Validate checks the weight.
func (b *PinBody) Validate() *machines.Refusal {
	var f findings
	f.weight("weight", b.Weight)
	return f.Refusal()
}

// Validate checks the labels.
func (b *LabelBody) Validate() *machines.Refusal {
	var f findings
	f.Labels(b.Labels, maxLabels)
	return f.Refusal()
}

// Validate checks the score.
func (b *FlapReport) Validate() *machines.Refusal {
	var f findings
	if !(b.Score >= 0 && b.Score <= 100) {
		f.Add("score", "must be from 0 to 100")
	}
	return f.Refusal()
}
