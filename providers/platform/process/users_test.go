//go:build linux

package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root without capabilities, as a hardened unit leaves it, would start, and every release would end at once.
func TestRootWithoutCapabilitiesGivesNoUsers(t *testing.T) {
	t.Parallel()
	status := filepath.Join(t.TempDir(), "status")
	for has, missing := range map[string]string{
		"0000000000000400": "without CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID,",
		"00000000000000ab": "without CAP_SETGID,",
		"00000000000000eb": "", "000001ffffffffff": "",
	} {
		require.NoError(t, os.WriteFile(status, []byte("Name:\tinstar\nCapPrm:\t000001ffffffffff\nCapEff:\t"+has+"\nCapAmb:\t0000000000000000\n"), 0o600))
		if err := capable(status); missing == "" {
			require.NoError(t, err, has)
		} else {
			require.ErrorContains(t, err, missing, has)
		}
	}
	require.NoError(t, capable(filepath.Join(t.TempDir(), "none")), "a system that knows none")
}
