package tenants

import (
	"testing"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/server/config"
)

// A session that was planned before there was a catalogue is where the configuration has put it. What nothing is known of needs a server only where there is something to take back.
func TestASessionWithoutAServerIsWhereTheConfigurationSays(t *testing.T) {
	t.Parallel()
	servers := []config.TenantServer{{Name: "t1"}, {Name: "t2", Sizes: []string{"large"}}}
	p := &performer{catalogue: &catalogue{servers: servers}} // without a bucket: it is not asked
	for _, s := range servers {
		p.servers = append(p.servers, &target{TenantServer: s})
	}
	something := []machine.Action{{Name: "delete_database", Kind: machine.KindDatabase}}
	for _, tc := range []struct {
		effect, size, planned, want string
		actions                     []machine.Action
	}{
		{"allocate", "large", "", "t2", nil},
		{machine.EffectUndo, "large", "", "t2", something},
		{machine.EffectUndo, "large", "t1", "t1", something},
		{machine.EffectUndo, "huge", "", "", something},
		{machine.EffectUndo, "huge", "", "t1", nil},
		{machine.EffectUndo, "large", "gone", "", something},
		{machine.EffectUndo, "large", "gone", "t1", nil},
		{"allocate", "large", "gone", "", nil},
	} {
		s, _, err := p.of(t.Context(), tc.effect, &machine.Task{Request: machine.RequestBody{EnterpriseID: "acme", Spec: tc.size}, Server: tc.planned, Actions: tc.actions})
		if tc.want == "" {
			require.Error(t, err, "%v", tc)
			continue
		}
		require.NoError(t, err, "%v", tc)
		require.Equal(t, tc.want, s.Name, "%v", tc)
	}
}
