package tenants_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/audit"
)

// Records are copied to where the configuration says, as soon as a node has the role.
func TestRecordsAreExported(t *testing.T) {
	t.Parallel()
	w, dir := setup(t, 1, "exported"), t.TempDir()
	w.Config.Tenants.AuditExport = dir
	w.Start()
	w.OK("POST", path("exported", "move")+"/request", `{"dryRun":true}`)
	w.ends("exported", "move", "cancelled")
	w.audited("exported", "")
	w.Kill()
	w.Start()
	var text []byte
	require.Eventually(t, func() bool {
		text, _ = os.ReadFile(filepath.Join(dir, "state", "00000000000000000001.jsonl")) // it is not there yet
		return len(text) > 0
	}, 3*time.Minute, tick, "a try that fails is repeated after a minute")
	first, _, _ := bytes.Cut(text, []byte("\n"))
	_, r, err := audit.HeadOf(first)
	require.NoError(t, err)
	require.Equal(t, "exported", r.Target.TenantID)
}
