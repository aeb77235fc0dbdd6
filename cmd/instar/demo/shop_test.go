package demo

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

// The demo fails when anything is broken.
func TestTheDemoJudges(t *testing.T) {
	t.Parallel()
	rows := map[string]bool{"a": true, "b": true}
	for what, c := range map[string]struct {
		found delivered
		acked string
		holds bool
	}{
		"well":              {delivered{events: 2, ids: map[string]bool{"a": true, "b": true}}, "a", true},
		"lost":              {delivered{events: 1, ids: map[string]bool{"a": true}}, "a", false},
		"twice":             {delivered{events: 3, doubled: 1, ids: map[string]bool{"a": true, "b": true}}, "a", false},
		"out of order":      {delivered{events: 2, disordered: 1, ids: map[string]bool{"a": true, "b": true}}, "a", false},
		"rolled back":       {delivered{events: 3, ids: map[string]bool{"a": true, "b": true, "c": true}}, "a", false},
		"acknowledged only": {delivered{events: 2, ids: map[string]bool{"a": true, "b": true}}, "c", false},
	} {
		d := &outboxDemo{out: io.Discard, began: time.Now(), shop: &shop{}}
		d.shop.ids.Store(c.acked, struct{}{})
		if err := d.judge(rows, c.found); c.holds {
			require.NoError(t, err, what)
		} else {
			require.Equal(t, command.ExitGeneric, command.CodeOf(err), what)
		}
	}
}
