package client

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadEvents(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	var got []event
	lines := 0
	err := readEvents(strings.NewReader(": hello\n\nevent: a\r\nid:1\r\ndata: one\r\ndata:two\r\n\r\nid: 2\n\nretry: 5\n\ndata: "+long+"\n\nevent: cut\ndata: off"),
		func() { lines++ }, func(ev event) error { got = append(got, ev); return nil })
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []event{{"1", "a", []byte("one\ntwo")}, {"2", "", nil}, {"", "", []byte(long)}}, got, "what is cut off is not told")
	require.Equal(t, 14, lines)

	stop := errors.New("enough")
	require.ErrorIs(t, readEvents(strings.NewReader("id: 1\n\n"), func() {}, func(event) error { return stop }), stop)
}

// Whatever a registry sends, the resolver does not break, and its list is what its targets are.
func FuzzWatch(f *testing.F) {
	f.Add("event: snapshot\nid: 5\ndata: {\"index\":5,\"instances\":[{\"instanceId\":\"a\",\"weight\":1}]}\n\nevent: delta\ndata: {\"index\":6,\"put\":[{\"instanceId\":\"b\",\"weight\":-1}],\"remove\":[\"a\",\"a\"]}\n\n")
	f.Add("event: delta\ndata: {\n\n")
	f.Add("event: end\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		r := &Resolver{service: "web", ready: make(chan struct{}), dirty: make(chan struct{}, 1), targets: map[string]*target{}}
		_ = readEvents(strings.NewReader(stream), func() {}, r.take)
		if len(r.Endpoints()) != len(r.targets) {
			t.Fatal("lost")
		}
		for range 3 {
			if c, err := r.Pick(); err == nil {
				c.Done(Refused)
			} else if len(r.targets) > 0 {
				t.Fatal(err)
			}
		}
	})
}
