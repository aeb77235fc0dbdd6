package knativetest

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Controller makes of Knative Services what Knative's controller would, one step at a time. What becomes of a revision
// is said by its image: one of the name fail fails, one of the name pending never becomes ready, all others do. Its zero
// value has seen none.
type Controller struct {
	seen map[any]*progress // by uid
	run  func(o Object) (url, failure string)
}

type progress struct {
	step      int // with this generation
	revisions int
}

// Next is the status that follows the one that the object has; it is the same when there is nothing more to do.
func (c *Controller) Next(o Object) Object {
	o = clone(o)
	meta, st := child(o, "metadata"), child(o, "status")
	if c.seen == nil {
		c.seen = map[any]*progress{}
	}
	p := c.seen[meta["uid"]]
	if p == nil {
		p = &progress{}
		c.seen[meta["uid"]] = p
	}
	if number(st["observedGeneration"]) != number(meta["generation"]) {
		p.step, st["observedGeneration"] = 0, meta["generation"]
		p.revisions++
		st["latestCreatedRevisionName"] = fmt.Sprintf("%s-%05d", meta["name"], p.revisions)
	}
	image := imageOf(o)
	missing := "RevisionMissing"
	routes := condition("RoutesReady", "Unknown", missing)
	if st["latestReadyRevisionName"] != nil {
		missing, routes = "", condition("RoutesReady", "True", "")
	}
	switch {
	case p.step == 0:
		set(st, condition("ConfigurationsReady", "Unknown", ""), condition("Ready", "Unknown", missing), routes)
	case c.run != nil:
		c.becomes(o, st, routes)
	case strings.Contains(image, "pending:"):
	case strings.Contains(image, "fail:"):
		set(st, condition("ConfigurationsReady", "False", "RevisionFailed"), condition("Ready", "False", "RevisionFailed"), routes)
	case p.step == 1:
		st["latestReadyRevisionName"] = st["latestCreatedRevisionName"]
		set(st, condition("ConfigurationsReady", "True", ""), condition("Ready", "Unknown", "IngressNotConfigured"), condition("RoutesReady", "Unknown", "IngressNotConfigured"))
	default:
		st["url"] = fmt.Sprintf("http://%s.example.com", meta["name"])
		st["traffic"] = []any{Object{"revisionName": st["latestReadyRevisionName"], "percent": 100.0, "latestRevision": true}}
		set(st, condition("ConfigurationsReady", "True", ""), condition("Ready", "True", ""), condition("RoutesReady", "True", ""))
	}
	p.step++
	return st
}

// becomes is what a revision that runs makes of the status.
func (c *Controller) becomes(o, st, routes Object) {
	url, failure := c.run(o)
	switch {
	case failure != "":
		why := condition("Ready", "False", "RevisionFailed")
		why["message"] = fmt.Sprintf("Revision %q failed with message: Container failed with: %s.", st["latestCreatedRevisionName"], failure)
		set(st, condition("ConfigurationsReady", "False", "RevisionFailed"), why, routes)
	case url != "":
		st["latestReadyRevisionName"], st["url"] = st["latestCreatedRevisionName"], url
		set(st, condition("ConfigurationsReady", "True", ""), condition("Ready", "True", ""), condition("RoutesReady", "True", ""))
	}
}

// mounted runs the pod of an object when the Secret that it mounts is there. The lock is held.
func (s *Server) mounted(o Object) (url, failure string) {
	data := Object{}
	volumes, _ := child(child(child(o, "spec"), "template"), "spec")["volumes"].([]any)
	for _, v := range volumes {
		v, _ := v.(Object)
		name, _ := child(v, "secret")["secretName"].(string)
		namespace, _ := child(o, "metadata")["namespace"].(string)
		secret := s.kept().Get(namespace, name)
		if secret == nil {
			return "", ""
		}
		data = child(secret, "data")
	}
	return s.Run(o, data)
}

// Play is the controller until ctx ends: at each tick it goes one step on with every object.
func (s *Server) Play(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			s.Step()
		}
	}
}

// Step is one step of the controller with every object. What is being deleted has gone after it.
func (s *Server) Step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Run != nil {
		s.controller.run = s.mounted
	}
	for _, key := range s.keys("", "") {
		before := s.objects[key]
		if child(before.object, "metadata")["deletionTimestamp"] != nil {
			s.remove(key)
			continue
		}
		after := clone(before.object)
		after["status"] = s.controller.Next(after)
		s.update(key, before, after)
	}
}

func imageOf(o Object) string {
	containers, _ := child(child(child(o, "spec"), "template"), "spec")["containers"].([]any)
	if len(containers) == 0 {
		return ""
	}
	c, _ := containers[0].(Object)
	image, _ := c["image"].(string)
	return image
}

func condition(typ, status, reason string) Object {
	c := Object{"type": typ, "status": status}
	if reason != "" {
		c["reason"], c["message"] = reason, "the controller says "+reason
	}
	return c
}

func set(st Object, conditions ...Object) {
	list := make([]any, len(conditions))
	for i, c := range conditions {
		list[i] = c
	}
	st["conditions"] = list
}
