package knative_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/providers/providertest"
)

// line is one second in the life of a service under Knative's own controller, as it was seen: the status that it wrote,
// and what has to be made of it.
type line struct {
	apply  string // an image, before the status
	status string // as kubectl would show it: observed generation, created, ready, conditions; empty leaves it as it is
	want   string // the situation, and the observation in short
}

var seen = []line{
	{"good:1", "", "unseen | gen 1 observed 0 hash good:1 |  "},
	{"", "1 real-00001 - Ready=Unknown,RevisionMissing", "creating | gen 1 observed 1 hash good:1 | Unknown RevisionMissing | created real-00001"},
	{
		"", "1 real-00001 - ConfigurationsReady=True Ready=Unknown,IngressNotConfigured",
		"routing | gen 1 observed 1 hash good:1 | Unknown IngressNotConfigured | created real-00001",
	},
	{"", "1 real-00001 real-00001 Ready=True", "ready | gen 1 observed 1 hash good:1 | True  | created real-00001 ready real-00001 serving real-00001"},
	{"bad:2", "", "outdated | gen 2 observed 1 hash bad:2 | True  | created real-00001 ready real-00001 serving real-00001"},
	{
		"", "2 real-00002 real-00001 Ready=Unknown RoutesReady=True",
		"updating | gen 2 observed 2 hash bad:2 | Unknown  | created real-00002 ready real-00001 serving real-00001",
	},
	{
		"", "2 real-00002 real-00001 Ready=False,RevisionFailed RoutesReady=True",
		"failed, the old serves | gen 2 observed 2 hash bad:2 | False RevisionFailed | created real-00002 ready real-00001 serving real-00001",
	},
	{"good:3", "", "outdated | gen 3 observed 2 hash good:3 | False RevisionFailed | created real-00002 ready real-00001 serving real-00001"},
	{"", "3 real-00003 real-00003 Ready=True", "ready | gen 3 observed 3 hash good:3 | True  | created real-00003 ready real-00003 serving real-00003"},
}

// What was seen of Knative's controller, line by line through the real client, with what is made of it.
func TestTheSituationsOfARealController(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	hashes, apart := map[string]string{}, map[string]bool{}
	var wanted, version = "", uint64(0)
	for _, l := range seen {
		if l.apply != "" {
			version++
			req := asking(version, image(l.apply))
			wanted, hashes[req.Hash] = req.Hash, l.apply
			b.applied(t, req)
		}
		if l.status != "" {
			b.cluster.SetStatus("default", "web", statusOf(l.status))
		}
		o := b.observed(t)
		apart[providertest.Situation(&o, wanted)] = true
		got := fmt.Sprintf("%s | gen %d observed %d hash %s | %s %s", providertest.Situation(&o, wanted), o.Generation, o.ObservedGeneration, hashes[o.SpecHash], o.Ready, o.Reason)
		if o.LatestCreated != "" {
			got += " | created " + o.LatestCreated
		}
		if o.LatestReady != "" {
			got += " ready " + o.LatestReady + " serving " + o.Serving
		}
		require.Equal(t, l.want, got)
		require.Empty(t, o.Fields)
	}
	require.NoError(t, b.Delete(t.Context(), providers.DeleteRequest{Request: asking(4, image("good:3")).Request}))
	o := b.observed(t)
	require.Equal(t, "Terminating", o.Reason)
	b.cluster.Step() // what belonged to it has gone
	o = b.observed(t)
	require.Equal(t, service.Observation{}, o)
	apart[providertest.Situation(&o, wanted)] = true
	require.Len(t, apart, 8)
}

// statusOf makes a status of its short form.
func statusOf(text string) knativetest.Object {
	words := strings.Fields(text)
	var observed int
	_, err := fmt.Sscan(words[0], &observed)
	if err != nil {
		panic(err)
	}
	s := knativetest.Object{"observedGeneration": observed, "latestCreatedRevisionName": words[1]}
	if words[2] != "-" {
		s["url"], s["latestReadyRevisionName"] = "http://web.example.com", words[2]
		s["traffic"] = []any{knativetest.Object{"revisionName": words[2], "percent": 100}}
	}
	var conditions []any
	for _, w := range words[3:] {
		typ, rest, _ := strings.Cut(w, "=")
		is, reason, _ := strings.Cut(rest, ",")
		conditions = append(conditions, knativetest.Object{"type": typ, "status": is, "reason": reason})
	}
	s["conditions"] = conditions
	return s
}
