package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLinksOfTheConsole(t *testing.T) {
	t.Parallel()
	require.NoError(t, UI{}.validate())
	require.NoError(t, UI{Trace: "https://traces.example.com/trace/{trace}?x=1", Grafana: "http://localhost:3000/d/instar"}.validate())
	for _, u := range []UI{
		{Trace: "https://traces.example.com/"},
		{Trace: "https://traces.example.com/{trace}/{trace}"},
		{Trace: "javascript:alert(1)//{trace}"},
		{Trace: "/trace/{trace}"},
		{Trace: "{trace}"},
		{Grafana: "grafana.example.com/d/instar"},
		{Grafana: "data:text/html,x"},
		{Grafana: "https://"},
	} {
		require.Error(t, u.validate(), "%+v", u)
	}
}
