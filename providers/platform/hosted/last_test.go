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

// journald cuts a line of more than 48 KiB, and says so of the part that ends there.
func TestOfTheLastLineOfAServiceAllIsToldOrNothing(t *testing.T) {
	t.Parallel()
	for journal, want := range map[string]string{
		"": "",
		`{"MESSAGE":"the only","_STREAM_ID":"1"}`:                                                                           "the only",
		`{"MESSAGE":"begins","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":"no table ","_STREAM_ID":"1"}`:                         "no table",
		`{"MESSAGE":"begins","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":[27,91,109,110,111],"_STREAM_ID":"1"}`:                 "\x1b[mno",
		`{"MESSAGE":null,"_LINE_BREAK":"line-max","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":"staple","_STREAM_ID":"1"}`:       "",
		`{"MESSAGE":"pass","_LINE_BREAK":"pid-change","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":"word","_STREAM_ID":"1"}`:     "",
		`{"MESSAGE":null,"_LINE_BREAK":"line-max","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":"started anew","_STREAM_ID":"2"}`: "started anew",
		`{"MESSAGE":"from syslog"}` + "\n" + `{"MESSAGE":"staple","_STREAM_ID":"1"}`:                                        "",
		`{"MESSAGE":"staple","_STREAM_ID":"1"}` + "\n" + `{"MESSAGE":"from syslog"}`:                                        "from syslog",
		`{"MESSAGE":"unfinished","_LINE_BREAK":"eof","_STREAM_ID":"1"}`:                                                     "unfinished",
		`{"MESSAGE":"correct horse","_LINE_BREAK":"line-max","_STREAM_ID":"1"}`:                                             "",
		`{"MESSAGE":null,"_STREAM_ID":"1"}`:                                                                                 "", "no json": "",
	} {
		require.Equal(t, want, lastEntry([]byte(journal)), journal)
	}
}
