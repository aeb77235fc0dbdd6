package knativetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/providertest"
)

// line is one second in the life of a service under Knative's own controller, as it was seen: the status that it wrote,
// and what has to be made of it.
type line struct {
	apply  string // an image, before the status
	status string // observed generation, created and ready revision, conditions; empty leaves the status as it is
	want   string // the situation, and the observation in short
}

var seen = []line{
	{"good:1", "", "unseen | gen 1 observed 0 hash good:1 | "},
	{"", "1 real-00001 - Ready=Unknown,RevisionMissing", "creating | gen 1 observed 1 hash good:1 | Unknown RevisionMissing | created real-00001"},
	{
		"", "1 real-00001 - ConfigurationsReady=True Ready=Unknown,IngressNotConfigured",
		"routing | gen 1 observed 1 hash good:1 | Unknown IngressNotConfigured | created real-00001",
	},
	{"", "1 real-00001 real-00001 Ready=True", "ready | gen 1 observed 1 hash good:1 | True | created real-00001 ready real-00001 serving real-00001"},
	{"bad:2", "", "outdated | gen 2 observed 1 hash bad:2 | True | created real-00001 ready real-00001 serving real-00001"},
	{
		"", "2 real-00002 real-00001 Ready=Unknown RoutesReady=True",
		"updating | gen 2 observed 2 hash bad:2 | Unknown | created real-00002 ready real-00001 serving real-00001",
	},
	{
		"", "2 real-00002 real-00001 Ready=False,RevisionFailed RoutesReady=True",
		"failed, the old serves | gen 2 observed 2 hash bad:2 | False RevisionFailed | created real-00002 ready real-00001 serving real-00001",
	},
	{"good:3", "", "outdated | gen 3 observed 2 hash good:3 | False RevisionFailed | created real-00002 ready real-00001 serving real-00001"},
	{"", "3 real-00003 real-00003 Ready=True", "ready | gen 3 observed 3 hash good:3 | True | created real-00003 ready real-00003 serving real-00003"},
}

// Replay goes through what was seen of Knative's controller, line by line: it applies with the gateway, lets the test
// write each status into the cluster, and compares what the gateway observes. The service is default/web, without an
// object yet. At the end it is deleted; collect then takes the object away as the cluster would.
func Replay(t testing.TB, gateway providers.Gateway, setStatus func(Object), collect func()) {
	t.Helper()
	req := providers.ApplyRequest{Request: providers.Request{Namespace: "default", Name: "web", UID: "life-1"}}
	images, apart := map[string]string{}, map[string]bool{}
	look := func() service.Observation {
		o, err := gateway.Observe(t.Context(), providers.ObserveRequest{Request: req.Request})
		if err != nil && !providers.IsNotFound(err) {
			t.Fatal(err)
		}
		apart[providertest.Situation(&o, req.Hash)] = true
		return o
	}
	for i, l := range seen {
		if l.apply != "" {
			req.Generation++
			req.Spec = service.Spec{Image: "registry.test/" + l.apply}
			req.Hash, req.Fence, req.Attempt = req.Spec.Hash(), req.Generation, fmt.Sprintf("apply-%d-1", req.Generation)
			images[req.Hash] = l.apply
			if _, err := gateway.Apply(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		if l.status != "" {
			setStatus(statusOf(l.status))
		}
		o := look()
		if got := tell(&o, req.Hash, images[o.SpecHash]); got != l.want || len(o.Fields) > 0 {
			t.Fatalf("line %d: observed\n  %s %v\nwant\n  %s", i+1, got, o.Fields, l.want)
		}
	}
	req.Fence++
	if err := gateway.Delete(t.Context(), providers.DeleteRequest{Request: req.Request}); err != nil {
		t.Fatal(err)
	}
	if o := look(); o.Reason != "Terminating" {
		t.Fatalf("after the deletion: %+v", o)
	}
	collect()
	if o := look(); o.Exists {
		t.Fatalf("after the end: %+v", o)
	}
	for _, s := range []string{
		providertest.Unseen, providertest.Creating, providertest.Routing, providertest.Ready, providertest.Outdated,
		providertest.Updating, providertest.FailedKept, providertest.Gone,
	} {
		if !apart[s] {
			t.Errorf("the situation %q was never seen", s)
		}
	}
}

// tell is an observation in short.
func tell(o *service.Observation, hash, image string) string {
	text := fmt.Sprintf("%s | gen %d observed %d hash %s | %s", providertest.Situation(o, hash), o.Generation, o.ObservedGeneration, image, o.Ready)
	if o.Reason != "" {
		text += " " + o.Reason
	}
	if o.LatestCreated != "" {
		text += " | created " + o.LatestCreated
	}
	if o.LatestReady != "" {
		text += " ready " + o.LatestReady + " serving " + o.Serving
	}
	return text
}

// statusOf makes a status of its short form.
func statusOf(text string) Object {
	words := strings.Fields(text)
	var observed float64
	if _, err := fmt.Sscan(words[0], &observed); err != nil {
		panic(err)
	}
	s := Object{"observedGeneration": observed, "latestCreatedRevisionName": words[1]}
	if words[2] != "-" {
		s["url"], s["latestReadyRevisionName"] = "http://web.example.com", words[2]
		s["traffic"] = []any{Object{"revisionName": words[2], "percent": 100.0}}
	}
	var conditions []any
	for _, w := range words[3:] {
		typ, rest, _ := strings.Cut(w, "=")
		is, reason, _ := strings.Cut(rest, ",")
		conditions = append(conditions, Object{"type": typ, "status": is, "reason": reason})
	}
	s["conditions"] = conditions
	return s
}
