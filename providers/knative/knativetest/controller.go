package knativetest

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Play is Knative's controller until ctx ends: at each tick it goes one step on with every object. What becomes of a
// revision is said by its image: one that ends in fail:… fails, one that ends in pending:… never becomes ready, all
// others do.
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

// Step is one step with every object.
func (s *Server) Step() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.keys("", "") {
		s.reconcile(key, s.objects[key])
	}
}

// reconcile writes the next status that Knative's controller would write. The lock is held.
func (s *Server) reconcile(key string, o *stored) {
	after := clone(o.object)
	meta, st := child(after, "metadata"), child(after, "status")
	_, name, _ := strings.Cut(key, "/")
	if meta["deletionTimestamp"] != nil {
		s.remove(key)
		return
	}
	if number(st["observedGeneration"]) != number(meta["generation"]) {
		o.step, st["observedGeneration"] = 0, meta["generation"]
		o.created++
		st["latestCreatedRevisionName"] = fmt.Sprintf("%s-%05d", name, o.created)
	}
	image := imageOf(after)
	routes := condition("RoutesReady", "Unknown", "RevisionMissing")
	if st["latestReadyRevisionName"] != nil {
		routes = condition("RoutesReady", "True", "")
	}
	switch {
	case o.step == 0:
		reason := "RevisionMissing"
		if st["latestReadyRevisionName"] != nil {
			reason = ""
		}
		set(st, condition("ConfigurationsReady", "Unknown", ""), condition("Ready", "Unknown", reason), routes)
	case strings.Contains(image, "pending:"):
	case strings.Contains(image, "fail:"):
		set(st, condition("ConfigurationsReady", "False", "RevisionFailed"), condition("Ready", "False", "RevisionFailed"), routes)
	case o.step == 1:
		st["latestReadyRevisionName"] = st["latestCreatedRevisionName"]
		set(st, condition("ConfigurationsReady", "True", ""), condition("Ready", "Unknown", "IngressNotConfigured"), condition("RoutesReady", "Unknown", "IngressNotConfigured"))
	default:
		st["url"] = "http://" + name + ".example.com"
		st["traffic"] = []any{Object{"revisionName": st["latestReadyRevisionName"], "percent": 100, "latestRevision": true}}
		set(st, condition("ConfigurationsReady", "True", ""), condition("Ready", "True", ""), condition("RoutesReady", "True", ""))
	}
	o.step++
	s.update(key, o, after)
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
