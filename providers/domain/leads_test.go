package domain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/domain"
)

func TestLeads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target, address string
		leads           bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"localhost:80", "127.0.0.1:80", true},
		{"LOCALHOST.:80", "127.0.0.1:80", true},
		{"[::1]:80", "127.0.0.1:80", true},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{"0.0.0.0:80", "127.0.0.1:80", true},
		{"[::ffff:10.0.0.7]:80", "10.0.0.7:80", true},
		{"App:80", "app:80", true},
		{"127.0.0.1:81", "127.0.0.1:80", false},
		{"127.0.0.2:80", "127.0.0.1:80", false},
		{"10.0.0.7:80", "10.0.0.8:80", false},
		{"127.0.0.1:80", "", false},
	} {
		require.Equal(t, c.leads, domain.Leads(&machine.Route{Targets: []machine.Target{{Address: "other:1"}, {Address: c.target}}}, c.address), "%+v", c)
	}
	require.False(t, domain.Leads(nil, "a:80"))
}
