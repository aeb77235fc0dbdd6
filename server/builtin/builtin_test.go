package builtin

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

func TestTheSectionThatIsLackingIsNamed(t *testing.T) {
	t.Parallel()
	none := absent(config.Defaults(config.Dev))
	require.Equal(t, "tenants", none["audit"])
	require.Equal(t, "domains", none["domains"])
	require.Equal(t, "platform", none["instance_provisionings"])
	require.NotContains(t, none, "instance_provisionings logs")

	cfg := config.Defaults(config.Dev)
	cfg.Tenants.Servers, cfg.Tenants.Source.DSN, cfg.Platform.Domain = []config.TenantServer{{}}, "x", "apps.example.com"
	some := absent(cfg)
	require.NotContains(t, some, "audit")
	require.NotContains(t, some, "instance_provisionings")
	require.Equal(t, "platform.logs", some["instance_provisionings logs"])
	cfg.Platform.Logs = true
	require.NotContains(t, absent(cfg), "instance_provisionings logs")
}
