package backup

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/stretchr/testify/require"
)

// A snapshot goes through as it is, but for the identities of the streams that are named.
func TestSourced(t *testing.T) {
	t.Parallel()
	header := func(source string) string {
		return "NATS/1.0\r\nA: b" + source + "\r\nNats-Msg-Id: 1\r\n\r\n"
	}
	const ord, other, old = "\r\nNats-Stream-Source: ORD 7 > > ord.x", "\r\nNats-Stream-Source: OTHER 7 > > x IDENTITY", "\r\nNats-Stream-Source: ORD 8 > >"
	large := strings.Repeat("Nats-Stream-Source: ORD 7 > > x IDENTITY\r\n", 10_000)
	entries := func(ord string) (packed []byte) {
		var out bytes.Buffer
		z := s2.NewWriter(&out)
		w := archive.NewWriter(z)
		write := func(h archive.Header, header, data string) {
			h.HeaderSize, h.PayloadSize = int64(len(header)), int64(len(data))
			require.NoError(t, w.WriteHeader(&h))
			_, err := io.WriteString(w, header+data)
			require.NoError(t, err)
		}
		write(archive.Header{Name: "state.json"}, "", `{"messages":4}`)
		write(archive.Header{Name: "a", Sequence: 3, Timestamp: 1}, header(ord), large)
		write(archive.Header{Name: "b", Sequence: 4}, header(other), "x")
		write(archive.Header{Name: "c", Sequence: 6}, header(old), "")
		write(archive.Header{Name: "d", Sequence: 7}, "", large)
		write(archive.Header{}, "", "")
		require.NoError(t, errors.Join(w.Close(), z.Close()))
		return out.Bytes()
	}
	through := func(given []byte, failure error) ([]byte, map[string]bool, error) {
		parts := slices.Collect(slices.Chunk(given, 1000))
		s, err := newSourced(func() ([]byte, error) {
			if len(parts) == 0 {
				return nil, failure
			}
			part := parts[0]
			parts = parts[1:]
			return part, nil
		}, []string{"ORD", "NEVER"})
		if err != nil {
			return nil, nil, err
		}
		var out []byte
		for {
			part, err := s.next()
			require.LessOrEqual(t, len(part), partBytes)
			if out = append(out, part...); part == nil || err != nil {
				return out, s.from, err
			}
		}
	}
	plain := func(packed []byte) string {
		text, err := io.ReadAll(s2.NewReader(bytes.NewReader(packed)))
		require.NoError(t, err)
		return string(text)
	}
	out, from, err := through(entries(ord+" IDENTITY"), nil)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"ORD": true}, from)
	require.Equal(t, plain(entries(ord)), plain(out))

	older := s2.EncodeBetter(nil, []byte(large)) // no archive
	whole := entries(ord)
	for _, given := range [][]byte{older, nil, []byte("x"), whole[:len(whole)/2]} {
		out, from, err = through(given, nil)
		require.NoError(t, err)
		require.Empty(t, from)
		require.Equal(t, string(given), string(out), "the server says what it is")
	}
	for n := range 20 {
		_, _, err = through(whole[:len(whole)*n/20], io.ErrNoProgress)
		require.ErrorIs(t, err, io.ErrNoProgress)
	}
}
