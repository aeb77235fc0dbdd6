package instance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/instance/reader"
)

// What the quick way reads is what encoding/json reads, of anything that an instance may become.
func TestTheReaderReadsAsDecodeDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var r reader.Reader
		w := &world{t: t, e: instance.Machine.New("default", "web", "a"), now: time.Date(2026, 1, 26, 17, 0, 0, 0, time.UTC)}
		w.step(w.register())
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "pause")))
			w.step(w.input())
			if w.e.State == "" {
				continue // it was never registered
			}
			value, err := w.e.AppendJSON(nil)
			require.NoError(t, err)
			want, err := instance.Decode(value)
			require.NoError(t, err)
			got, err := r.Decode(w.e.Key(), value)
			require.NoError(t, err)
			require.Equal(t, want, got, string(value))
		}
	})
}
