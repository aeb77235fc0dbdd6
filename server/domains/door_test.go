package domains

import (
	"encoding/json"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/problem"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/streams/publish"
)

// A session leads and removes what has its label.
func TestTheLabelsOfTheServerAreItsOwn(t *testing.T) {
	t.Parallel()
	d := &door{refuses: func(string) string { return "" }, reaches: func(netip.AddrPort) error { return nil }}
	bind := func(labels map[string]string) error {
		body, err := json.Marshal(machine.BindBody{Host: "shop.example.com", Route: machine.Route{Targets: []machine.Target{{Address: "10.0.0.7:8080"}}}, Labels: labels})
		require.NoError(t, err)
		return d.admit(publish.Command{Machine: machine.Machine.Name, Key: "default.acme.shop", Name: machine.CommandBind, Body: body})
	}
	require.NoError(t, bind(map[string]string{"team": "web", "instar.example.com/session": "own"}))
	var no *problem.Problem
	require.ErrorAs(t, bind(map[string]string{"team": "web", "instar/session": "own"}), &no)
	require.Equal(t, http.StatusUnprocessableEntity, no.Status)
	require.Equal(t, "body.labels.instar/session", no.Errors[0].Location)
}
