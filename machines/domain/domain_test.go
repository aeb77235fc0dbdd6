package domain_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, domain.Machine, transcripts)
}

func TestEveryEdgeIsSeenInATranscript(t *testing.T) {
	t.Parallel()
	transcript.Cover(t, domain.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, domain.Machine)
}

func TestBodiesThatAreRefused(t *testing.T) {
	t.Parallel()
	to := func(addresses ...string) domain.Route {
		var r domain.Route
		for _, a := range addresses {
			r.Targets = append(r.Targets, domain.Target{Address: a, Weight: 1})
		}
		return r
	}
	good := domain.BindBody{Host: "shop.example.com", Route: to("10.0.0.7:8080", "[::1]:80", "app.internal:8080")}
	require.Nil(t, good.Validate())
	for _, host := range []string{
		"", "localhost", "10.0.0.1", "*.example.com", "Shop.example.com", "shop.example.com.", "-a.example.com", "a_b.example.com", "a..example.com", "a.example.com:80", "ä.example.com", "a.example.com/x",
		strings.Repeat("a.", 125) + "com", strings.Repeat("a", 64) + ".com",
	} {
		b := good
		b.Host = host
		require.NotNil(t, b.Validate(), host)
	}
	for _, r := range []domain.Route{
		{},
		to("10.0.0.7"), to("10.0.0.7:0"), to("10.0.0.7:65536"), to(":80"), to("a:80", "a:80"), to("a/b:80"), to("a@b:80"), to(strings.Repeat("a", 300) + ":80"),
		{Targets: []domain.Target{{Address: "a:80", Weight: -1}}},
		{Targets: []domain.Target{{Address: "a:80", Weight: 1001}}},
		{Targets: to("a:80").Targets, Health: domain.Health{Path: "health"}},
		{Targets: to("a:80").Targets, Health: domain.Health{Path: "/a b"}},
		{Targets: to("a:80").Targets, Health: domain.Health{Path: "/a\r\nb"}},
		{Targets: to("a:80").Targets, Health: domain.Health{EverySeconds: -1}},
		{Targets: to("a:80").Targets, Health: domain.Health{WithinSeconds: 61}},
	} {
		b := good
		b.Route = r
		require.NotNil(t, b.Validate(), "%+v", r)
		require.NotNil(t, (&domain.RetargetBody{Route: r}).Validate(), "%+v", r)
	}
}

// A record that was made for one entity, or for an earlier life, proves no other.
func TestTokensAreOfOneLife(t *testing.T) {
	t.Parallel()
	text := transcript.Play(domain.Machine, `bind {"host":"a.example.com","route":{"targets":[{"address":"a:1"}]}}
remove
report removed
bind {"host":"a.example.com","route":{"targets":[{"address":"a:1"}]}}
`)
	var tokens []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "event domain.bound") {
			_, token, _ := strings.Cut(line, "instar-domain=")
			tokens = append(tokens, token[:32])
		}
	}
	require.Len(t, tokens, 2)
	require.NotEqual(t, tokens[0], tokens[1])
}

// Whoever binds a name again may begin with the labels that it had: those of the server say whose the life before was.
func TestWhatIsRemovedKeepsNoLabelsOfTheServer(t *testing.T) {
	t.Parallel()
	e := domain.Machine.New("default", "acme", "shop")
	for _, in := range []machines.Input{
		{Command: domain.CommandBind, Body: json.RawMessage(`{"host":"shop.example.com","route":{"targets":[{"address":"10.0.0.7:80"}]},"labels":{"team":"web","instar/session":"own","instar/generation":"1"}}`)},
		{Command: domain.CommandRemove},
		{Command: domain.ReportRemoved, Body: json.RawMessage(`{}`)},
	} {
		in.Time = time.Now()
		before, labels := e, maps.Clone(e.Labels)
		next, _, err := domain.Machine.Step(e, in)
		require.NoError(t, err)
		require.Equal(t, labels, before.Labels)
		e = next
	}
	require.Equal(t, domain.Removed, e.State)
	require.Equal(t, map[string]string{"team": "web"}, e.Labels)
}
