package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func all(t testing.TB, p *Parser) (ops []Op, err error) {
	for {
		op, ok, err := p.Next()
		if err != nil || !ok {
			return ops, err
		}
		ops = append(ops, op)
	}
}

func TestOperationsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	p := &Parser{MaxPayload: 64}
	p.Feed([]byte("CONNECT {\"verbose\":false}\r\nPING\r\nSUB a.b q 1\r\nUNSUB 1 5\r\nPUB a r 2\r\nhi\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nyo\r\n"))
	ops, err := all(t, p)
	require.NoError(t, err)
	require.Equal(t, []Op{
		{Kind: Connect, Data: []byte(`{"verbose":false}`)},
		{Kind: Ping},
		{Kind: Sub, Subject: "a.b", Queue: "q", SID: "1"},
		{Kind: Unsub, SID: "1", Max: 5},
		{Kind: Pub, Subject: "a", Reply: "r", Data: []byte("hi")},
		{Kind: Pub, Subject: "a", Header: []byte("NATS/1.0\r\n\r\n"), Data: []byte("yo")},
	}, ops)
	p.Feed([]byte("PUB a 65\r\n"))
	_, _, err = p.Next()
	require.ErrorIs(t, err, ErrPayload)
	p = &Parser{}
	p.Feed([]byte("NONSENSE\r\n"))
	_, _, err = p.Next()
	require.ErrorIs(t, err, ErrProtocol)
}

// What comes in pieces is the same as what comes at once.
func FuzzParser(f *testing.F) {
	f.Add([]byte("SUB a 1\r\nPUB a 2\r\nhi\r\nHPUB a b 12 12\r\nNATS/1.0\r\n\r\n\r\n"), 3)
	f.Add([]byte("PUB a 5\r\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, piece int) {
		whole := &Parser{MaxPayload: 1024}
		whole.Feed(b)
		want, errWant := all(t, whole)
		pieces := &Parser{MaxPayload: 1024}
		var got []Op
		var err error
		for piece = max(piece, 1); len(b) > 0 && err == nil; b = b[min(piece, len(b)):] {
			pieces.Feed(b[:min(piece, len(b))])
			var some []Op
			some, err = all(t, pieces)
			got = append(got, some...)
		}
		require.Equal(t, want, got)
		require.Equal(t, errWant, err)
	})
}
