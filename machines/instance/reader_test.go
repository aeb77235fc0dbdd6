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
		w := begin(t)
		w.step(w.register())
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			w.Pause(time.Minute)
			w.step(w.input())
			if w.E.State == "" {
				continue // it was never registered
			}
			value, err := w.E.AppendJSON(nil)
			require.NoError(t, err)
			want, err := instance.Decode(value)
			require.NoError(t, err)
			got, err := r.Decode(w.E.Key(), value)
			require.NoError(t, err)
			require.Equal(t, want, got, string(value))
		}
	})
}
