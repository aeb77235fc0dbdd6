package hosted

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// An engine cuts a line that is too long for it into several: the last of these may begin within a secret.
func TestOfTheLastLineOfAContainerAllIsToldOrNothing(t *testing.T) {
	t.Parallel()
	for want, wrote := range map[string][]string{
		"no table":   {"begins\n", "no table\n"},
		"the only":   {"the only\n"},
		"unfinished": {"begins\n", "unfinished"},
		"":           {"password correct horse", " battery staple\n"},
	} {
		var raw []byte
		for _, line := range wrote {
			raw = append(binary.BigEndian.AppendUint32(append(raw, 2, 0, 0, 0), uint32(len(line))), line...)
		}
		require.Equal(t, want, lastOf(raw))
	}
	require.Empty(t, lastOf(nil))
}
