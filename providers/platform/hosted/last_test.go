package hosted

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// An engine cuts a line that is too long for it into several: the last of these may begin within a secret.
func TestOfTheLastLineOfAContainerAllIsToldOrNothing(t *testing.T) {
	t.Parallel()
	const out, err = "\x01", "\x02" // the stream, before each line
	full := slices.Repeat([]string{out + "served\n"}, tail-1)
	for _, c := range []struct {
		want  string
		wrote []string
	}{
		{"no table", []string{err + "begins\n", err + "no table\n"}},
		{"the only", []string{err + "the only\n"}},
		{"unfinished", []string{err + "begins\n", err + "unfinished"}},
		{"", []string{err + "password correct horse", err + " battery staple\n"}},
		{"", []string{err + "password correct horse", out + "served\n", err + " battery staple\n"}},
		{"no table", []string{err + "begins\n", out + "a long", err + "no table\n"}},
		{"no table", append(full[1:len(full):len(full)], err+"no table\n")},
		{"", append(full[:len(full):len(full)], err+" battery staple\n")}, // of which the first part may be before
		{"served", append(full[:len(full):len(full)], out+"served\n")},
	} {
		var raw []byte
		for _, line := range c.wrote {
			raw = append(binary.BigEndian.AppendUint32(append(raw, line[0], 0, 0, 0), uint32(len(line)-1)), line[1:]...)
		}
		require.Equal(t, c.want, lastOf(raw), c.wrote)
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
