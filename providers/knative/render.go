package knative

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// wanted is the object of a request, to take the place of live, which is nil when there is none.
func (g *Gateway) wanted(req *providers.ApplyRequest, live *object) (*object, error) {
	if probes[req.Spec.Probe.Kind()] == nil {
		return nil, providers.Errorf(providers.Invalid, "probe: %q is not one of %s", req.Spec.Probe.Type, strings.Join(service.ProbeTypes, ", "))
	}
	o := &object{APIVersion: resource.GroupVersion().String(), Kind: "Service"}
	o.Spec.Template = templateOf(&req.Spec)
	o.Spec.Template.Metadata.Annotations[markHash] = req.Hash
	o.Spec.Template.Metadata.Annotations[markGeneration] = revisionOf(req, live)
	fields, err := json.Marshal(o.fields())
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot write down the fields: %v", err)
	}
	o.Metadata = metadata{
		Name: req.Name, Namespace: g.space(&req.Request), ResourceVersion: neverWritten,
		Labels: g.labels(&req.Request),
		Annotations: map[string]string{
			markHash: req.Hash, markLife: req.UID, markAttempt: req.Attempt, markFence: strconv.FormatUint(req.Fence, 10), markFields: string(fields),
			markGeneration: strconv.FormatUint(req.Generation, 10),
		},
	}
	if live != nil {
		o.Metadata.UID, o.Metadata.ResourceVersion = live.Metadata.UID, live.Metadata.ResourceVersion
	}
	return o, nil
}

// labels say whose an object is.
func (g *Gateway) labels(r *providers.Request) map[string]string {
	return map[string]string{labelManaged: manager, labelOwner: g.config.Owner, labelNamespace: r.Namespace}
}

// revisionOf is the generation that asked for the revision: this one, unless the object has the same specification
// already and is not to be replaced anew.
func revisionOf(req *providers.ApplyRequest, live *object) string {
	if live != nil {
		before := live.Spec.Template.Metadata.Annotations
		asked, err := strconv.ParseUint(before[markGeneration], 10, 64)
		if err == nil && before[markHash] == req.Hash && (!req.Spec.ForceReplace || asked >= req.Generation) {
			return before[markGeneration]
		}
	}
	return strconv.FormatUint(req.Generation, 10)
}

// templateOf is a specification in Knative's words.
func templateOf(s *service.Spec) template {
	low, high := s.Scale.Min, s.Scale.Max
	if low == 0 && high == 0 {
		low, high = 1, 1
	}
	marks := map[string]string{minScale: strconv.Itoa(low), maxScale: strconv.Itoa(high)}
	if s.Probe.StartupSeconds > 0 { // otherwise Knative's own, because an image may have to be pulled first
		marks[progressDeadline] = (time.Duration(s.Probe.StartupSeconds) * time.Second).String()
	}
	c := container{Image: s.Image, ReadinessProbe: probeOf(&s.Probe)}
	for _, n := range slices.Sorted(maps.Keys(s.Env)) {
		c.Env = append(c.Env, variable{Name: n, Value: s.Env[n]})
	}
	if s.Port != 0 {
		c.Ports = []port{{ContainerPort: int64(s.Port)}}
	}
	return template{Metadata: templateMetadata{Annotations: marks}, Spec: revisionSpec{Containers: []container{c}}}
}

// probes are the ways to probe in Kubernetes' words, by the type of the probe.
var probes = map[string]func(p *service.Probe, r *readiness){
	service.ProbeHTTP: func(p *service.Probe, r *readiness) { r.HTTPGet = &httpGet{Path: cmp.Or(p.Path, "/")} },
	service.ProbeTCP:  func(_ *service.Probe, r *readiness) { r.TCPSocket = &struct{}{} },
}

// probeOf rounds up to whole seconds, which is what Kubernetes has.
func probeOf(p *service.Probe) *readiness {
	r := &readiness{PeriodSeconds: seconds(p.PeriodMillis), TimeoutSeconds: seconds(p.TimeoutMillis), FailureThreshold: 3}
	if p.Failures > 0 {
		r.FailureThreshold = int64(p.Failures)
	}
	probes[p.Kind()](p, r)
	return r
}

func seconds(millis int) int64 { return max(1, int64(millis+999)/1000) }

// fields are what an object wants, by name: what is compared to find drift. Values of the environment may be secrets
// and are told as a hash.
func (o *object) fields() map[string]string {
	f := map[string]string{}
	marks := o.Spec.Template.Metadata.Annotations
	for name, mark := range map[string]string{"scale.min": minScale, "scale.max": maxScale, "probe.startup": progressDeadline, "revision": markGeneration} {
		if v, ok := marks[mark]; ok {
			f[name] = v
		}
	}
	if len(o.Spec.Template.Spec.Containers) != 1 {
		f["containers"] = strconv.Itoa(len(o.Spec.Template.Spec.Containers))
		return f
	}
	c := o.Spec.Template.Spec.Containers[0]
	f["image"] = c.Image
	for _, v := range c.Env {
		sum := sha256.Sum256([]byte(v.Value))
		f["env."+v.Name] = hex.EncodeToString(sum[:8])
	}
	for _, p := range c.Ports {
		f["port"] = strconv.FormatInt(p.ContainerPort, 10)
	}
	if p := c.ReadinessProbe; p != nil {
		f["probe.timing"] = fmt.Sprintf("every %ds, timeout %ds, failures %d", p.PeriodSeconds, p.TimeoutSeconds, p.FailureThreshold)
		switch {
		case p.HTTPGet != nil:
			f["probe.http"] = p.HTTPGet.Path
		case p.TCPSocket != nil:
			f["probe.tcp"] = "true"
		}
	}
	return f
}
