package backup

import (
	"bytes"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func compressed(t testing.TB, lines string) []byte {
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return z.EncodeAll([]byte(lines), nil)
}

const head, section = `{"head":{"instarBackup":1,"version":"v1","last":7}}`, `{"section":{"stream":"EVENTS","kind":"messages"}}`

func TestCheck(t *testing.T) {
	t.Parallel()
	good := head + "\n" + section + "\n" + `{"m":{"s":"a.b","q":1}}` + "\n" + `{"end":{"messages":{"EVENTS":1}}}` + "\n"
	h, end, err := Check(bytes.NewReader(compressed(t, good)))
	require.NoError(t, err)
	require.EqualValues(t, 7, h.Last)
	require.Equal(t, 1, end.Messages["EVENTS"])
	for what, lines := range map[string]string{
		"nothing": "", "no head": section, "no end": head + section, "less": head + section + `{"end":{"messages":{"EVENTS":1}}}`, "another stream": head + section + `{"end":{"messages":{"EVENTS":0,"X":0}}}`,
		"a message of nothing": head + `{"m":{"s":"a"}}` + `{"end":{}}`, "an unknown line": head + `{"x":1}` + `{"end":{}}`, "more": good + "{}", "no JSON": head + "x",
	} {
		_, _, err := Check(bytes.NewReader(compressed(t, lines)))
		require.ErrorIs(t, err, ErrIncomplete, what)
	}
	_, _, err = Check(bytes.NewReader(compressed(t, `{"head":{"instarBackup":2,"version":"v9"}}`)))
	require.ErrorContains(t, err, "use the one that made it, v9")
	_, _, err = Check(bytes.NewReader(append(compressed(t, good), 'x')))
	require.Error(t, err)
}

// Whatever a file holds, it is read or refused.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(head+section+`{"m":{"s":"a.b","q":1}}{"end":{"messages":{"EVENTS":1}}}`), false)
	f.Add(compressed(f, head), true)
	f.Fuzz(func(t *testing.T, data []byte, raw bool) {
		if !raw {
			data = compressed(t, string(data))
		}
		if _, end, err := Check(bytes.NewReader(data)); err == nil {
			require.NotNil(t, end)
		}
	})
}

// A snapshot ends at the next section, or with the backup; neither is lost by that.
func TestPartsOfASnapshot(t *testing.T) {
	t.Parallel()
	snapshot := `{"section":{"stream":"ORDERS","kind":"snapshot"}}{"part":"YQ=="}{"part":"Yg=="}`
	for _, after := range []string{section, ""} {
		end := `{"end":{"messages":{"ORDERS":2}}}`
		if after != "" {
			end = `{"end":{"messages":{"ORDERS":2,"EVENTS":0}}}`
		}
		in, err := open(bytes.NewReader(compressed(t, head+snapshot+after+end)))
		require.NoError(t, err)
		l, err := in.next()
		require.NoError(t, err)
		require.Equal(t, KindSnapshot, l.Section.Kind)
		for _, want := range []string{"a", "b", ""} {
			part, err := in.part()
			require.NoError(t, err)
			require.Equal(t, want, string(part))
		}
		if after != "" {
			l, err = in.next()
			require.NoError(t, err)
			require.Equal(t, "EVENTS", l.Section.Stream)
		}
		_, err = in.next()
		require.ErrorIs(t, err, io.EOF)
		in.close()
	}
}
