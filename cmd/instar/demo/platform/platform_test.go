package platform

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/demo/demotest"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/server/builtin"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run-template" {
		os.Exit(builtin.Options().Programs["run-template"].Run(os.Args[2:]))
	}
	demotest.Main(m, Commands()...)
}

func TestDemoPlatform(t *testing.T) {
	t.Parallel()
	out := &lockedbuffer.Buffer{}
	require.NoError(t, newPlatformDemo(out).run(t.Context()), out)
	for _, line := range []string{
		`cleo is ready: database own/tenant_cleo, bucket tenant-cleo, process at 127\.0\.0\.1:280\d\d, name cleo\.apps\.example\.test, certificate [0-9a-f]+`,
		`an order is sent to https://ann\.apps\.example\.test, which answers: version 1\.1 of ann: 2 orders in tenant_ann, 2 receipts in tenant-ann`,
		`ben's next version was withdrawn: DEPLOYMENT_UNHEALTHY: the release tenant-ben-r2 does not become healthy: ExitCode: .*this version has a mistake`,
		`cleo leaves\n.* the database tenant_cleo is put aside as q_`,
		`cleo has left`,
	} {
		require.Regexp(t, line, out.String())
	}
	t.Log(out)
}
